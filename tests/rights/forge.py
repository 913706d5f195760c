"""Issuers and their tokens, made with the cryptography library alone where ours must not help."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

ISSUER: Final = "https://login.example.org"
AUDIENCE: Final = "edgewake"
NOW_S: Final = 1_795_248_000.0


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Maker:
    """An issuer with one private key."""

    def __init__(self, algorithm: str = "ES256", kid: str = "k1", *, bits: int = 2048) -> None:
        self.algorithm, self.kid = algorithm, kid
        self.private: Any
        if algorithm.startswith("ES"):
            curve = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
            self.private = ec.generate_private_key(curve[algorithm])
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = rsa.generate_private_key(65_537, bits)

    @property
    def jwk(self) -> dict[str, Any]:
        """Its public key, as a set has it."""
        kind = jwt.get_algorithm_by_name(self.algorithm)
        found: dict[str, Any] = kind.to_jwk(self.private.public_key(), as_dict=True)
        return found | {"kid": self.kid, "use": "sig"}

    def token(self, header: Mapping[str, Any] | None = None, **claims: Any) -> bytes:
        """A token; claims that are None are left out."""
        said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "anna", "exp": NOW_S + 600} | claims
        body = {name: value for name, value in said.items() if value is not None}
        headers = {"kid": self.kid, **(header or {})}
        return jwt.encode(body, self.private, self.algorithm, headers=headers).encode()


def key_set(*makers: Maker) -> str:
    return json.dumps({"keys": [maker.jwk for maker in makers]})


def write(path: Path, text: str) -> Path:
    """Write a file as one that changes should be: at once."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    return fresh.rename(path)


def raw(header: Mapping[str, Any], claims: Mapping[str, Any], signature: bytes = b"") -> bytes:
    """A token of any shape."""
    parts = [json.dumps(part).encode() for part in (header, claims)] + [signature]
    return ".".join(map(b64, parts)).encode()
