"""What a token (JWT, RFC 7519) proves: from its bytes, its issuer's keys and the time. Pure.

The issuer is looked up by the claim `iss`, character for character; the key among that issuer's own
by `kid`; the algorithm must be one that the configuration allows and that this key makes. Nothing
that a token says about its key beside that (`jku`, `jwk`, `x5u`) is looked at.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import jwt
import orjson

from edgewake.cloud.rights.config import GrantConfig, IssuerConfig
from edgewake.cloud.rights.jwks import Key
from edgewake.cloud.rights.principal import Grant, Principal, Proof, name_of
from edgewake.cloud.rights.roles import NoRights, Roles, granted
from edgewake.protocol.ops.proof import Kind

TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""`typ` of a token that is believed; one without is, too."""
DETAILS: Final = "authorization_details"
DETAILS_TYPE: Final = "edgewake"
DETAILS_MAX: Final = 32
"""Grants that a token may carry."""
TIME_S_MAX: Final = 253_402_300_800
"""The year 10000."""


_COMPACT: Final = re.compile(rb"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]*)")


class Refused(Exception):
    """A key or token that proves nothing; `str` says why."""


class Lapsed(Refused):
    """A key or token that was given out, and proves nothing here and now: nobody guessed it."""


class UnknownKey(Refused):
    """Signed by a key that its issuer's set does not have, as far as is known."""


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer with the keys that it has at the moment."""

    config: IssuerConfig
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it was written. Nothing of it is checked."""

    digest: bytes
    """SHA-256 of all of it."""
    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


def read(text: bytes) -> Token:
    """A token in its compact form (RFC 7515, 7.1). Raises Refused."""
    parts = _COMPACT.fullmatch(text)
    if parts is None:
        raise Refused("unknown key; expected a key of this server or a JSON Web Token")
    try:
        header, claims = (orjson.loads(_bytes_of(parts[n])) for n in (1, 2))
        signature = _bytes_of(parts[3])
    except ValueError as error:
        raise Refused("token: expected three parts of base64url, the first two of them JSON") from (
            error
        )
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise Refused("token: expected JSON objects")
    signed = text[: parts.end(2)]
    return Token(sha256(text).digest(), header, claims, signed, signature)


def check(token: Token, issuer: Issuer, roles: Roles, *, now_s: float) -> Principal:
    """Who a token of this issuer belongs to. Raises Refused, Lapsed and UnknownKey."""
    key, expires_s = verify(token, issuer, now_s=now_s)
    try:
        return _principal(token, key, issuer.config, roles, expires_s)
    except NoRights as error:
        raise Lapsed(f"token: {error}") from error


def verify(token: Token, issuer: Issuer, *, now_s: float) -> tuple[Key, float]:
    """Verify a token of this issuer for this audience; return its key and its expiry.

    The expiry is in s since 1970 UTC. Raises Refused, Lapsed and UnknownKey.
    """
    config, claims = issuer.config, token.claims
    key, algorithm = _key(token.header, issuer)
    if not jwt.get_algorithm_by_name(algorithm).verify(token.signed, key.public, token.signature):
        raise Refused("token: its signature is wrong")
    audience = claims.get("aud")
    if claims.get("iss") != config.issuer:
        raise Lapsed("token: iss: it is another issuer's")
    if config.audience not in (audience if isinstance(audience, list) else [audience]):
        raise Lapsed(f"token: aud: expected {config.audience!r}")
    return key, _checked_times(claims, config, now_s)


def _key(header: Mapping[str, Any], issuer: Issuer) -> tuple[Key, str]:
    algorithm, kid = header.get("alg"), header.get("kid", "")
    if algorithm not in issuer.config.algorithms:
        raise Refused(f"token: expected a signature by {', '.join(issuer.config.algorithms)}")
    if str(header.get("typ", "JWT")).lower() not in TYPES or "crit" in header:
        raise Refused("token: expected typ JWT or at+jwt, and no crit")
    able = [key for key in issuer.keys if algorithm in key.algorithms]
    named = [key for key in able if key.kid == kid]
    if not kid and len(able) == 1:
        return able[0], algorithm
    if not kid or len(named) != 1:
        raise UnknownKey("token: its issuer has no such key")
    return named[0], algorithm


def _checked_times(claims: Mapping[str, Any], config: IssuerConfig, now_s: float) -> float:
    """When it expires, in s since 1970 UTC. Raises Refused."""
    if "exp" not in claims:
        raise Lapsed("token: exp is missing")
    times = {name: claims[name] for name in ("exp", "nbf", "iat") if name in claims}
    for name, value in times.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not -TIME_S_MAX < value < TIME_S_MAX:
            raise Lapsed(f"token: {name}: expected seconds since 1970")
    expires_s = float(times["exp"])
    if expires_s + config.leeway_s <= now_s:
        raise Lapsed("token: it is expired")
    if expires_s > now_s + config.life_max_s + config.leeway_s:
        raise Lapsed(f"token: it is good for more than {config.life_max_s:.0f} s")
    if max(times.get("nbf", 0), times.get("iat", 0)) > now_s + config.leeway_s:
        raise Lapsed("token: it is not good yet; is the clock right here, and at its issuer?")
    return expires_s


def _principal(
    token: Token,
    key: Key,
    config: IssuerConfig,
    roles: Roles,
    expires_s: float,
) -> Principal:
    claims = token.claims
    subject, token_id = claims.get("sub"), claims.get("jti", "")
    if not isinstance(subject, str) or not isinstance(token_id, str) or not subject:
        raise NoRights("sub, and jti where there is one: expected texts")
    role, grants = granted_by(claims, config, roles)
    used = {config.role_claim, *(roles.claims(role) if role else ())}
    if config.details:
        used.add(DETAILS)
    return Principal(
        name_of(config.issuer, subject),
        grants,
        Proof(
            Kind.TOKEN,
            token.digest,
            issuer=config.issuer,
            key=key.thumbprint,
            subject=subject,
            token_id=token_id,
        ),
        roles.limits(role),
        int((expires_s + config.leeway_s) * 1000),
        {name: claims[name] for name in sorted(used) if name in claims},
    )


def granted_by(
    claims: Mapping[str, Any], config: IssuerConfig, roles: Roles
) -> tuple[str, tuple[Grant, ...]]:
    """The role that claims name, empty for none, and what they allow. Raises NoRights."""
    role = claims.get(config.role_claim, config.role)
    if role is not None and role != config.role and role not in config.roles:
        raise NoRights(f"{config.role_claim}: its issuer may not give this role")
    details = _details(claims) if config.details else ()
    if role is None and not details:
        raise NoRights(f"it says no role in {config.role_claim}, and its issuer has none by itself")
    named = () if role is None else roles.grants(role, claims)
    return role or "", (*named, *details)


def _details(claims: Mapping[str, Any]) -> tuple[Grant, ...]:
    found = claims.get(DETAILS, [])
    if not isinstance(found, list) or len(found) > DETAILS_MAX:
        raise NoRights(f"authorization_details: expected a list of up to {DETAILS_MAX}")
    ours = [one for one in found if isinstance(one, dict) and one.get("type") == DETAILS_TYPE]
    try:
        return tuple(
            granted(
                GrantConfig.model_validate({n: v for n, v in one.items() if n != "type"}), claims
            )
            for one in ours
        )
    except ValueError as error:
        raise NoRights(
            "authorization_details: expected type, actions, streams, publications, sets, devices, "
            "fields"
        ) from error


def _bytes_of(part: bytes) -> bytes:
    """Raises ValueError."""
    return base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
