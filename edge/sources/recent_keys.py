"""Keys of requests that were taken lately, so that one that is sent again is not taken again. Pure; the log keeps it as text."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

KEYS_MAX: Final = 64
"""Keys that are remembered; each is 17 bytes of every commit. A sender repeats what it sent last, not what it sent long before."""
KEY_BYTES: Final = 8
"""Bytes of a key's digest: two of 64 keys are alike once in 10^16 requests."""


class RecentKeys:
    """The last KEYS_MAX keys."""

    def __init__(self, digests: Iterable[str] = ()) -> None:
        self._digests = dict.fromkeys(digests)

    @classmethod
    def decode(cls, text: str | None) -> RecentKeys:
        """From what `encode` wrote; None: nothing yet."""
        return cls((text or "").split())

    def encode(self) -> str:
        """As the log keeps it."""
        return " ".join(self._digests)

    def __contains__(self, key: str) -> bool:
        return _digest(key) in self._digests

    def add(self, key: str) -> None:
        """The newest; the oldest goes."""
        digest = _digest(key)
        self._digests.pop(digest, None)
        self._digests[digest] = None
        while len(self._digests) > KEYS_MAX:
            del self._digests[next(iter(self._digests))]

    def forget(self, key: str) -> None:
        """It was not taken after all."""
        self._digests.pop(_digest(key), None)


def _digest(key: str) -> str:
    return blake2b(key.encode(), digest_size=KEY_BYTES).hexdigest()
