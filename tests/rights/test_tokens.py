"""Tokens that prove something, and those of people who wish they did."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from edgewake.cloud.rights import jwks, tokens
from edgewake.cloud.rights.config import GrantConfig, IssuerConfig, RightsConfig, RoleConfig
from edgewake.cloud.rights.principal import Action, Principal
from edgewake.cloud.rights.roles import Roles
from edgewake.cloud.rights.tokens import Issuer, Refused, UnknownKey
from tests.rights.forge import AUDIENCE, ISSUER, NOW_S, Maker, b64, key_set, raw

RSA, EC, ED = Maker("RS256", "r"), Maker("ES256", "e"), Maker("EdDSA", "d")
CONFIG = RightsConfig(
    roles={
        "owner": RoleConfig(
            grants=(GrantConfig(streams=("s",), devices=("$device",), fields=("speed",)),),
            streams_max=3,
        ),
        "guest": RoleConfig(grants=(GrantConfig(streams=("weather_*",)),)),
    }
)


def check(
    token: bytes, *, keys: str = key_set(RSA, EC, ED), now_s: float = NOW_S, **config: Any
) -> Principal:
    settings: dict[str, Any] = {
        "issuer": ISSUER,
        "audience": AUDIENCE,
        "jwks_file": "keys.json",
        "role": "guest",
        "roles": ("owner",),
        "leeway_s": 5.0,
    }
    issuer = Issuer(IssuerConfig(**settings | config), jwks.parse(keys))
    return tokens.check(tokens.read(token), issuer, Roles(CONFIG), now_s=now_s)


@pytest.mark.parametrize("maker", [RSA, EC, ED])
def test_a_token_gives_its_role(maker: Maker) -> None:
    guest = check(maker.token(jti="t1"))
    assert guest.name == f"{ISSUER}#anna"
    assert guest.may(Action.READ, "weather_now")
    assert not guest.may(Action.READ, "s")
    assert guest.expires_at == (NOW_S + 605) * 1000
    assert (guest.proof.subject, guest.proof.token_id) == ("anna", "t1")
    owner = check(maker.token(edgewake_role="owner", device="car-7"))
    scope = owner.scope(Action.READ, "s")
    assert scope is not None
    assert scope.sees("car-7")
    assert not scope.sees("car-8")
    assert not scope.shows_field("lat")
    assert owner.limits.streams_max == 3


def test_subjects_that_begin_alike_are_two_however_long() -> None:
    """What a principal leaves behind, such as deliveries with their secrets, is its name's."""
    names = {check(EC.token(sub="CN=" + "x" * 300 + end)).name for end in ("a", "b")}
    assert len(names) == 2


def test_grants_can_be_made_again_of_the_claims_that_are_kept() -> None:
    used: dict[str, Any] = {"edgewake_role": "owner", "device": ["car-7"]}
    owner = check(EC.token(**used, email="anna@example.org"))
    assert owner.claims == used, "and nothing else"
    config = IssuerConfig(issuer=ISSUER, audience=AUDIENCE, jwks_file="k", roles=("owner",))
    assert tokens.granted_by(owner.claims, config, Roles(CONFIG)) == ("owner", owner.grants)


def test_a_claim_may_name_many_devices_and_no_pattern() -> None:
    scope = check(EC.token(edgewake_role="owner", device=["a", "b"])).scope(Action.READ, "s")
    assert scope is not None
    assert [scope.sees(name) for name in "abc"] == [True, True, False]
    for device in (
        "*",
        ["a", "car-*"],
        [],
        "",
        None,
        7,
        {"a": 1},
        [["a"]],
        ["a", 7],
        ["a"] * 2 + [""],
    ):
        with pytest.raises(Refused, match="claim 'device'"):
            check(EC.token(edgewake_role="owner", device=device))


def test_what_grants_a_token_carries_itself() -> None:
    details: list[dict[str, Any]] = [
        {"type": "edgewake", "streams": ["s"], "actions": ["read"], "devices": ["$device"]},
        {"type": "payment", "amount": 4},
    ]
    token = EC.token(authorization_details=details, device="car-7")
    held = check(token, details=True, role=None)
    scope = held.scope(Action.READ, "s")
    assert scope is not None
    assert scope.sees("car-7")
    assert not scope.sees("car-8")
    assert not held.may(Action.WAKE, "s")
    assert not check(token).may(Action.READ, "s")
    for wrong in ([{"type": "edgewake"}], [dict(details[0], x=1)], {"a": 1}, details[:1] * 33):
        with pytest.raises(Refused, match="authorization_details"):
            check(EC.token(authorization_details=wrong), details=True)


CLAIMS: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "exp": NOW_S + 600}


def by_public_key(encode: Callable[[Maker], bytes]) -> bytes:
    """HS256 with what everybody knows, the public key, as its secret."""
    head = json.dumps({"alg": "HS256", "kid": "r"}).encode()
    text = f"{b64(head)}.{b64(json.dumps(CLAIMS).encode())}"
    mac = hmac.new(encode(RSA), text.encode(), sha256).digest()
    return f"{text}.{b64(mac)}".encode()


def pem(maker: Maker) -> bytes:
    found: bytes = maker.private.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    return found


FOREIGN = Maker("RS256", "r")
HOSTILE: dict[str, Callable[[], bytes]] = {
    "no signature": lambda: raw({"alg": "none", "kid": "r"}, CLAIMS),
    "no signature, written otherwise": lambda: raw({"alg": "nOnE", "kid": "r"}, CLAIMS),
    "no algorithm": lambda: raw({"kid": "r"}, CLAIMS),
    "the public key as a secret": lambda: by_public_key(pem),
    "the public JWK as a secret": lambda: by_public_key(lambda m: json.dumps(m.jwk).encode()),
    "a foreign key of the same name": lambda: FOREIGN.token(),
    "its own key in the header": lambda: FOREIGN.token({"jwk": FOREIGN.jwk}),
    "a key by its own address": lambda: FOREIGN.token({"jku": "http://127.0.0.1/keys"}),
    "another algorithm of the same key": lambda: _with_algorithm("PS256"),
    "a name of a file as kid": lambda: RSA.token({"kid": "../../../dev/null"}),
    "SQL as kid": lambda: RSA.token({"kid": "x' UNION SELECT 'y"}),
    "a kid of another key": lambda: RSA.token({"kid": "e"}),
    "what must be understood": lambda: RSA.token({"crit": ["exp"]}),
    "another type": lambda: RSA.token({"typ": "logout+jwt"}),
    "another audience": lambda: RSA.token(aud="others"),
    "no audience": lambda: RSA.token(aud=None),
    "another issuer": lambda: RSA.token(iss="https://evil.example.org"),
    "an issuer with a slash more": lambda: RSA.token(iss=ISSUER + "/"),
    "expired": lambda: RSA.token(exp=NOW_S - 6),
    "no expiry": lambda: RSA.token(exp=None),
    "expiry far away": lambda: RSA.token(exp=NOW_S + 10 * 365 * 86_400),
    "expiry for ever": lambda: RSA.token(exp=float("inf")),
    "expiry that is no number": lambda: RSA.token(exp=float("nan")),
    "expiry as a text": lambda: RSA.token(exp=str(NOW_S + 600)),
    "expiry as true": lambda: RSA.token(exp=True),
    "not yet": lambda: RSA.token(nbf=NOW_S + 60),
    "made in the future": lambda: RSA.token(iat=NOW_S + 60),
    "no subject": lambda: RSA.token(sub=None),
    "a subject that is no text": lambda: raw_signed(sub=["anna"]),
    "a role that its issuer may not give": lambda: RSA.token(edgewake_role="everything"),
    "a role that is none": lambda: RSA.token(edgewake_role={"a": 1}),
    "a jti that is no text": lambda: raw_signed(jti=7),
    "half a token": lambda: RSA.token()[:-20],
    "a changed claim": lambda: _changed(),
    "no token": lambda: b"abc",
    "dots": lambda: b"..",
    "deep JSON": lambda: f"{b64(b'[' * 3000)}.{b64(b'{}')}.".encode(),
}  # fmt: skip


def _with_algorithm(algorithm: str) -> bytes:
    forged = Maker("RS256", "r")
    forged.private, forged.algorithm = RSA.private, algorithm
    return forged.token()


def raw_signed(**claims: Any) -> bytes:
    """A token that a library would not make, signed by the issuer's own key."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

    parts = [json.dumps(part).encode() for part in ({"alg": "RS256", "kid": "r"}, CLAIMS | claims)]
    text = ".".join(map(b64, parts))
    signature: bytes = RSA.private.sign(text.encode(), PKCS1v15(), hashes.SHA256())
    return f"{text}.{b64(signature)}".encode()


def _changed() -> bytes:
    head, _, signature = RSA.token().split(b".")
    body = b64(json.dumps(CLAIMS | {"sub": "berta"}).encode()).encode()
    return b".".join([head, body, signature])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_token_that_proves_nothing(name: str) -> None:
    with pytest.raises(Refused) as refused:
        check(HOSTILE[name]())
    assert len(str(refused.value)) < 300


def test_the_controls_of_those_pass() -> None:
    assert check(raw_signed()).name.endswith("#anna")
    assert check(RSA.token(exp=NOW_S - 4)).expires_at == (NOW_S + 1) * 1000
    assert check(_with_algorithm("PS256"), algorithms=("PS256",)).name.endswith("#anna")
    assert check(RSA.token({"kid": ""}), keys=key_set(RSA, EC)).name.endswith("#anna")
    assert check(RSA.token({"typ": "at+jwt"})).name.endswith("#anna")


def test_a_key_that_is_not_known_is_told_apart() -> None:
    """It may have been made since its issuer was asked."""
    with pytest.raises(UnknownKey):
        check(EC.token(), keys=key_set(RSA, ED))
    with pytest.raises(UnknownKey):
        check(RSA.token({"kid": ""}), keys=key_set(RSA, Maker("RS256", "r2")))
