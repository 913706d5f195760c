"""The public keys of an issuer: which are taken, and which sets are refused."""

from __future__ import annotations

import json

import pytest

from edgewake.cloud.rights import jwks
from edgewake.protocol.errors import ConfigError
from tests.rights.forge import Maker, key_set

RSA, EC, ED = Maker("RS256", "r"), Maker("ES256", "e"), Maker("EdDSA", "d")


def test_keys_of_a_set() -> None:
    small = Maker("RS256", "small", bits=1024)
    found = jwks.parse(
        json.dumps(
            {
                "keys": [
                    {"kty": "oct", "k": "c2VjcmV0c2VjcmV0", "kid": "o"},
                    small.jwk,
                    RSA.jwk | {"use": "enc", "kid": "enc"},
                    {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "broken"},
                    {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "other"},
                    7,
                    EC.jwk | {"alg": "ES256"},
                    RSA.jwk | {"alg": "RS512", "d": "AQAB"},
                ]
            }
        )
    )
    assert [(key.kid, sorted(key.algorithms)) for key in found] == [
        ("e", ["ES256"]),
        ("r", ["RS512"]),
    ]


def test_a_member_that_is_null_is_one_that_is_not_there() -> None:
    """Some libraries write all members that there are: their sets were an error of ours."""
    nulls: dict[str, object] = {"alg": None, "use": None, "key_ops": None, "x5c": None}
    (found,) = jwks.parse(json.dumps({"keys": [EC.jwk | nulls]}))
    assert (found.kid, found.algorithms) == ("e", {"ES256"})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": {}}',
        '{"keys": []}',
        "[" * 100_000,
        "x" * 300_000,
        key_set(RSA, RSA),
        json.dumps({"keys": [EC.jwk | {"key_ops": 5}]}),
        json.dumps({"keys": [EC.jwk | {"alg": "ECDH-ES"}]}),
    ],
)
def test_what_is_no_key_set(text: str) -> None:
    with pytest.raises(ConfigError):
        jwks.parse(text)
