"""Chunks: what a subscription shows between two positions, made once for all who are at the first.

Chunks are found by the canonical form of their start. They are kept within a bound of bytes for all
subscriptions together, and no longer than UNUSED_S after somebody last asked for them; one that is
asked for later is made again.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from edgewake.cloud.log.subscription import Positions

UNUSED_S: Final = 5.0
"""As long as clients that were disconnected together take to come back."""
CHUNK_OVERHEAD_BYTES: Final = 600
"""Memory of a chunk beside its content, roughly: its positions and keys."""

C = TypeVar("C")

Key: TypeAlias = Positions
"""Canonical positions: equal for all who have the same events before them."""


@dataclass(slots=True)
class Chunk(Generic[C]):
    """`content` is what is shown between `start` and `end` in one encoding; None: nothing."""

    key: Key
    start: Positions
    end: Positions
    next_key: Key
    content: C | None
    events: int
    size: int
    used_s: float


class Chunks:
    """The chunks of all views, by (view, key)."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self._bytes_max = bytes_max
        self._chunks: OrderedDict[tuple[int, Key], Chunk[object]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._chunks)

    def get(self, view: int, key: Key, now_s: float) -> Chunk[object] | None:
        """The chunk that begins there, if there is one."""
        chunk = self._chunks.get((view, key))
        if chunk is not None:
            chunk.used_s = now_s
            self._chunks.move_to_end((view, key))
        return chunk

    def put(self, view: int, chunk: Chunk[object]) -> None:
        """Add one; the least used give way."""
        before = self._chunks.pop((view, chunk.key), None)
        self.bytes += chunk.size - (before.size if before else 0)
        self._chunks[view, chunk.key] = chunk
        while self.bytes > self._bytes_max and len(self._chunks) > 1:
            self._drop_first()

    def drop_unused(self, now_s: float) -> None:
        """Drop what nobody asked for within UNUSED_S."""
        while self._chunks and now_s - next(iter(self._chunks.values())).used_s >= UNUSED_S:
            self._drop_first()

    def _drop_first(self) -> None:
        self.bytes -= self._chunks.popitem(last=False)[1].size
