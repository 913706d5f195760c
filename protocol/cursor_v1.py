"""Cursors of version 1: read as long as clients may still hold one (the retention of the streams, a week by default), never written.

`v1.` + base64url of: subscription (4 bytes, streams, where and select in one hash), generation (4 bytes, all topics' ids in one hash), key
id (1 byte), positions (varints per stream in sorted order: count, then offset and index for each partition), tag (10 bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from edgewake.protocol import varint

_HEAD: Final = 9


@dataclass(frozen=True, slots=True)
class CursorV1:
    """What a cursor of version 1 knows. `positions[i][p]` is partition p of the i-th stream in sorted order."""

    subscription: bytes
    generation: bytes
    positions: tuple[tuple[tuple[int, int], ...], ...]


def subscription_hash(streams: Sequence[str], where: str | None, select: str | None) -> bytes:
    """4 bytes that stand for streams, in any order, and filters."""
    text = "\0".join([*sorted(streams), "\1", where or "", "\1", select or ""])
    return blake2b(text.encode(), digest_size=4).digest()


def generations_hash(topic_ids: Sequence[str]) -> bytes:
    """4 bytes that stand for all topics' ids, in the sorted order of the streams."""
    return blake2b("\0".join(topic_ids).encode(), digest_size=4).digest()


def read_v1(signed: bytes) -> CursorV1:
    """A cursor's verified bytes."""
    reader = varint.Reader(signed, _HEAD)
    positions = []
    while not reader.ended:
        positions.append(tuple((reader.number(), reader.number()) for _ in range(reader.number())))
    return CursorV1(signed[:4], signed[4:8], tuple(positions))
