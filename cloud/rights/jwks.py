"""The public keys of one issuer, as a JSON Web Key Set has them (RFC 7517). Pure.

A key says which signatures it makes: RSA (2048 bits or more) RS and PS, P-256 ES256, P-384 ES384,
P-521 ES512, Ed25519 and Ed448 EdDSA. Keys for other uses than signatures are skipped, and so are
shared secrets (`oct`). A member that is null is one that is not there: some issuers write all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from edgewake.protocol.errors import ConfigError

SET_BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100
"""Keys of a set that are looked at; issuers have two or three."""
RSA_BITS_MIN: Final = 2048
_ALGORITHMS: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    ("RSA", ""): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
    ("OKP", "Ed448"): frozenset({"EdDSA"}),
}


@dataclass(frozen=True, slots=True)
class Key:
    """A public key."""

    kid: str
    """Empty where the set does not name it."""
    algorithms: frozenset[str]
    thumbprint: str
    """SHA-256 of the key itself: another key of the same name is another one."""
    public: Any


def parse(text: str | bytes) -> tuple[Key, ...]:
    """The keys of a set. Raises ConfigError for what is not a set or holds no usable key."""
    if len(text) > SET_BYTES_MAX:
        raise ConfigError(f"{len(text)} bytes: expected at most {SET_BYTES_MAX}")
    try:
        entries = json.loads(text)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError('expected a JSON Web Key Set, {"keys": […]}') from error
    if not isinstance(entries, list):
        raise ConfigError('expected a JSON Web Key Set, {"keys": […]}')
    found = [_key(entry) for entry in entries[:KEYS_MAX] if isinstance(entry, dict)]
    keys = tuple(key for key in found if key is not None)
    if not keys:
        raise ConfigError("no key in it makes signatures: expected RSA, EC or OKP public keys")
    names = [key.kid for key in keys if key.kid]
    if len(set(names)) < len(names):
        raise ConfigError("two keys with the same `kid`; expected each once")
    return keys


def _key(entry: Mapping[str, Any]) -> Key | None:
    kind = str(entry.get("kty")), "" if entry.get("kty") == "RSA" else str(entry.get("crv"))
    algorithms = _ALGORITHMS.get(kind)
    if algorithms is None or entry.get("use") not in (None, "sig"):
        return None
    operations = entry.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    public_part = {name: value for name, value in entry.items() if name not in _PRIVATE}
    try:
        public = jwt.PyJWK(public_part, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if isinstance(public, RSAPublicKey) and public.key_size < RSA_BITS_MIN:
        return None
    if entry.get("alg") is not None:
        algorithms &= {str(entry["alg"])}
    if not algorithms:
        return None
    encoded = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    kid = entry.get("kid", "")
    return Key(kid if isinstance(kid, str) else "", algorithms, sha256(encoded).hexdigest(), public)


_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""What a public key has not: a set that was made by mistake of private ones serves as well."""
