"""Encrypts what browsers keep for us: AES-256-GCM with a random nonce.

A text's purpose is authenticated too, so that one cannot stand for another.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from edgewake.protocol.errors import ConfigError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
NAME_BYTES: Final = 4
"""Of a key's fingerprint."""
TEXT_BYTES_MAX: Final = 8192
"""A text that is longer is not looked at: browsers keep 4 KB in a cookie."""


class Sealed(Exception):
    """It was not made with a key that we have, or it was changed."""


Ciphers = Mapping[bytes, AESGCM]
"""By their keys' fingerprints; the first encrypts."""


def parse_keys(text: str) -> Ciphers:
    """The ciphers of a key file. Raises ConfigError, which never shows a key."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    try:
        keys = [bytes.fromhex(line) for line in lines if line]
    except ValueError as error:
        raise ConfigError("expected 64 hex digits a line") from error
    if not keys or any(len(key) != KEY_BYTES for key in keys):
        raise ConfigError("expected at least one key, each of 64 hex digits")
    return {_fingerprint(key): AESGCM(key) for key in keys}


def seal(
    ciphers: Ciphers, purpose: str, content: bytes, random_bytes: Callable[[int], bytes]
) -> str:
    """The text for a cookie."""
    name, cipher = next(iter(ciphers.items()))
    nonce = random_bytes(NONCE_BYTES)
    sealed = cipher.encrypt(nonce, content, purpose.encode())
    return base64.urlsafe_b64encode(name + nonce + sealed).decode().rstrip("=")


def unseal(ciphers: Ciphers, purpose: str, text: str) -> bytes:
    """What was sealed for this purpose. Raises Sealed."""
    if len(text) > TEXT_BYTES_MAX:
        raise Sealed
    try:
        found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        cipher = ciphers[found[:NAME_BYTES]]
        begin = NAME_BYTES + NONCE_BYTES
        return cipher.decrypt(found[NAME_BYTES:begin], found[begin:], purpose.encode())
    except (InvalidTag, binascii.Error, ValueError, KeyError) as error:
        raise Sealed from error


def _fingerprint(key: bytes) -> bytes:
    return blake2b(key, digest_size=NAME_BYTES, person=b"edgewake login").digest()
