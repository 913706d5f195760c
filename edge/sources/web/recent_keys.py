"""Keys of requests that were taken lately, so that one that is sent again is not taken again.

Pure; the log keeps it as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

KEYS_MAX: Final = 64
"""Keys that are remembered; each is 26 bytes of every commit. A sender repeats what it sent last,
not what it sent long before."""
KEY_BYTES: Final = 8
"""Bytes of a key's digest: two of 64 keys are alike once in 10^16 requests."""
BODY_BYTES: Final = 4
"""Bytes of the digest of what came under a key: another body is taken for the same once in four
billion."""


class RecentKeys:
    """The last KEYS_MAX keys, each with what came under it."""

    def __init__(self, digests: Mapping[str, str] | None = None) -> None:
        self._digests = dict(digests or {})

    @classmethod
    def decode(cls, text: str | None) -> RecentKeys:
        """Load what `encode` wrote; None: nothing yet."""
        pairs = (word.partition(":") for word in (text or "").split())
        return cls({key: body for key, _, body in pairs})

    def encode(self) -> str:
        """The keys as the log keeps them."""
        return " ".join(f"{key}:{body}" for key, body in self._digests.items())

    def __contains__(self, key: str) -> bool:
        return _digest(key.encode(), KEY_BYTES) in self._digests

    def came_with(self, key: str, body: bytes) -> bool:
        """Did a key that is known come with this body?"""
        return self._digests[_digest(key.encode(), KEY_BYTES)] == _digest(body, BODY_BYTES)

    def add(self, key: str, body: bytes) -> None:
        """The newest; the oldest goes."""
        digest = _digest(key.encode(), KEY_BYTES)
        self._digests.pop(digest, None)
        self._digests[digest] = _digest(body, BODY_BYTES)
        while len(self._digests) > KEYS_MAX:
            del self._digests[next(iter(self._digests))]

    def copy(self) -> RecentKeys:
        """One that changes for itself."""
        return RecentKeys(self._digests)


def _digest(text: bytes, size: int) -> str:
    return blake2b(text, digest_size=size).hexdigest()
