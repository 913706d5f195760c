"""Encrypts what others keep for us: AES-256-GCM (NIST SP 800-38D) with a random nonce of 96 bits.

A text's purpose is authenticated too, so that one cannot stand for another. Several keys may be
there at once, so that a key can be changed: the first encrypts, all decrypt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
NAME_BYTES: Final = 4
"""Length of a key's fingerprint, which is its name, so that a wrong key is never tried."""


def keys_in(text: str) -> list[bytes]:
    """The keys of a file: 64 hex digits a line; `#` begins a comment. Raises ValueError."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [bytes.fromhex(line) for line in lines if line]


class Ciphers:
    """A cipher for each key."""

    def __init__(self, keys: Sequence[bytes], person: bytes) -> None:
        """`person`: makes a key's names differ by use. Raises ValueError, which shows no key."""
        if not keys or any(len(key) != KEY_BYTES for key in keys):
            raise ValueError(f"expected at least one key, each of {2 * KEY_BYTES} hex digits")
        self._by_name = {_name(key, person): AESGCM(key) for key in keys}
        self.first = _name(keys[0], person)
        """The name of the key that encrypts."""

    @property
    def names(self) -> Collection[bytes]:
        """The fingerprints of all keys."""
        return self._by_name.keys()

    def encrypt(self, purpose: str, content: bytes, random_bytes: Callable[[int], bytes]) -> bytes:
        """The nonce and the ciphertext."""
        nonce = random_bytes(NONCE_BYTES)
        return nonce + self._by_name[self.first].encrypt(nonce, content, purpose.encode())

    def decrypt(self, name: bytes, purpose: str, encrypted: bytes) -> bytes:
        """What was encrypted with the key of this name.

        Raises KeyError for another key; InvalidTag or ValueError for what is damaged, or was
        encrypted for another purpose.
        """
        nonce, sealed = encrypted[:NONCE_BYTES], encrypted[NONCE_BYTES:]
        return self._by_name[name].decrypt(nonce, sealed, purpose.encode())


def _name(key: bytes, person: bytes) -> bytes:
    return blake2b(key, digest_size=NAME_BYTES, person=person).digest()
