"""Encrypts what browsers keep for us, as text for a cookie."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Final

from cryptography.exceptions import InvalidTag

from edgewake.cloud.ciphers import NAME_BYTES, Ciphers, keys_in
from edgewake.protocol.errors import ConfigError

TEXT_BYTES_MAX: Final = 8192
"""A text that is longer is not looked at: browsers keep 4 KB in a cookie."""
PERSON: Final = b"edgewake login"


class Sealed(Exception):
    """It was not made with a key that we have, or it was changed."""


def parse_keys(text: str) -> Ciphers:
    """The ciphers of a key file. Raises ConfigError, which never shows a key."""
    try:
        keys = keys_in(text)
    except ValueError as error:
        raise ConfigError("expected 64 hex digits a line") from error
    try:
        return Ciphers(keys, PERSON)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def seal(
    ciphers: Ciphers, purpose: str, content: bytes, random_bytes: Callable[[int], bytes]
) -> str:
    """The text for a cookie."""
    sealed = ciphers.first + ciphers.encrypt(purpose, content, random_bytes)
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def unseal(ciphers: Ciphers, purpose: str, text: str) -> bytes:
    """What was sealed for this purpose. Raises Sealed."""
    if len(text) > TEXT_BYTES_MAX:
        raise Sealed
    try:
        found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return ciphers.decrypt(found[:NAME_BYTES], purpose, found[NAME_BYTES:])
    except (InvalidTag, binascii.Error, ValueError, KeyError) as error:
        raise Sealed from error
