"""The tail: the latest records of one partition in memory, within a bound of bytes.

Readers pull from it by position.

It is complete from `start` (inclusive) to `end` (exclusive): every committed record between has
been seen, offsets that hold none (transaction markers, aborted records) included. Older positions
are `edgewake.cloud.log.replay`'s business. One event loop owns a tail.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, Final, cast

from edgewake.cloud.log.decode import Record
from edgewake.protocol.cursor import Position

RECORD_OVERHEAD_BYTES: Final = 300
"""Memory of a record beside its value, roughly; counted so that many tiny records keep within the
bound too."""
_COMPACT_FROM: Final = 512


class Tail:
    """The latest records of a partition."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._records: list[Record] = []
        self._offsets: list[int] = []
        self._head = 0

    def append(self, record: Record) -> int:
        """Add the next record; the bytes it needs. One that was seen before is ignored."""
        if record.offset < self.end:
            return 0
        self._records.append(record)
        self._offsets.append(record.offset)
        self.end = record.offset + 1
        return len(record.value) + RECORD_OVERHEAD_BYTES

    def reaches(self, end: int) -> None:
        """Note that no more records are committed before `end`."""
        self.end = max(self.end, end)

    def evict(self) -> int:
        """Drop the oldest record; the bytes it took."""
        record = self._records[self._head]
        self._head += 1
        self.start = record.offset + 1
        self._records[self._head - 1] = _EVICTED
        if self._head >= _COMPACT_FROM and self._head * 2 > len(self._records):
            del self._records[: self._head], self._offsets[: self._head]
            self._head = 0
        return len(record.value) + RECORD_OVERHEAD_BYTES

    def __len__(self) -> int:
        return len(self._records) - self._head

    def oldest(self) -> Record:
        """The record that `evict` would drop."""
        return self._records[self._head]

    def has(self, position: Position) -> bool:
        """Is everything from `position` on to be had here?"""
        return position[0] >= self.start

    def read_from(self, position: Position) -> Iterator[Record]:
        """Records from `position` on; the first may be one whose events were partly passed."""
        found: Any = iter(self._records)
        found.__setstate__(self._index(position[0]))  # islice would go through all before it
        return cast("Iterator[Record]", found)

    def canonical(self, position: Position) -> Position:
        """The canonical form of a position: right after the last record before it.

        Offsets without a record (transaction markers) make two positions differ that mean the same.
        One that is not in this tail, or inside a record, stands for itself.
        """
        offset, index = position
        if index or not self.start <= offset <= self.end:
            return position
        at = self._index(offset)
        return (self._offsets[at - 1] + 1, 0) if at > self._head else (self.start, 0)

    def has_passed(self, position: Position, other: Position) -> bool:
        """Does `position` have everything before it that `other` has?"""
        return position >= other or self.canonical(position) >= self.canonical(other)

    def end_of(self, position: Position) -> Position:
        """The end, where no record is left after `position`; else the position itself.

        So retention of transaction markers is not a gap.
        """
        if position[1] or position[0] < self.start or self._index(position[0]) < len(self._records):
            return position
        return (max(self.end, position[0]), 0)

    def _index(self, offset: int) -> int:
        return bisect_left(self._offsets, offset, self._head)


_EVICTED: Final = Record(-1, 0, b"", is_result=False)
