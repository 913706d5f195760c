"""The consumers of the log: how far each is, and what none of them needs.

Pure, but for `rows_after`.

A consumer has one row: its cursor in each of its streams and its state, so that both are always of
the same commit. A batch goes when the cloud has acknowledged its frame and every consumer of its
stream has passed it. What only consumers still need is bounded (`log.consumer_bytes`): beyond, the
oldest goes, and who had not read it is told how many and why.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from edgewake.edge.log.tables.codec import Reading, checksum, is_sound_batch, readings_of
from edgewake.edge.log.tables.gaps import gap_before, gaps_behind
from edgewake.edge.log.tables.streams import StreamState
from edgewake.protocol.topics import of_all_things, stream_and_thing

LAGGED: Final = "lagged"
"""Reason of what was given up because a consumer was too far behind: the cloud has it."""
CORRUPT: Final = "corrupt"


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """The row of one consumer."""

    name: str
    cursor: Mapping[str, int]
    """The last position that it has passed, by stream. One that it has `of_all_things` of stands
    for streams of things that came after it: they are read from their beginning."""
    missed: int = 0
    """Readings that were gone before it read them."""
    commit: int = 0
    """Number of the commit that wrote it."""
    state: bytes | None = None
    """None where it never committed one, or where it was lost with a damaged log."""

    def position(self, stream: str) -> int | None:
        """The last position of a stream that it has passed; None where it does not read it."""
        at = self.cursor.get(stream)
        if at is None and is_any_of(stream, self.cursor):
            return 0
        return at

    def row(self) -> tuple[str, str, int, int, int, bytes | None]:
        """The row for the table."""
        cursor = orjson.dumps(dict(self.cursor), option=orjson.OPT_SORT_KEYS).decode()
        return self.name, cursor, self.missed, self.commit, self._checksum(cursor), self.state

    def _checksum(self, cursor: str) -> int:
        state = zlib.crc32(self.state) if self.state is not None else -1
        return checksum(b"", self.name, cursor, self.missed, self.commit, state)

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> ConsumerState:
        """The reverse of `row`. Raises ValueError, TypeError where it is damaged."""
        name, cursor, missed, commit, crc, state = row
        found = cls(name, orjson.loads(cursor), missed, commit, state)
        if found._checksum(cursor) != crc:
            raise ValueError(f"consumer {name!r} is malformed")
        return found

    def without_state(self) -> list[Any]:
        """The row for the sidecar, without its state."""
        return [self.name, dict(self.cursor), self.missed, self.commit]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> ConsumerState:
        """The reverse of `without_state`."""
        name, cursor, missed, commit = value
        return cls(
            str(name),
            {str(stream): int(at) for stream, at in cursor.items()},
            int(missed),
            int(commit),
        )

    def moved(self, passed: Passed, commit: int) -> ConsumerState:
        """After one of its commits. A cursor never goes back."""
        cursor = dict(self.cursor)
        for stream, at in passed.cursor.items():
            before = self.position(stream)
            if before is not None:
                cursor[stream] = max(before, at)
        state = self.state if passed.state is None else passed.state
        return replace(
            self, cursor=cursor, missed=self.missed + passed.missed, commit=commit, state=state
        )


@dataclass(frozen=True, slots=True)
class Passed:
    """A commit of a consumer."""

    cursor: Mapping[str, int]
    state: bytes | None = None
    """None: as it was."""
    missed: int = 0

    def then(self, later: Passed) -> Passed:
        """Two commits in one."""
        further = {
            stream: max(at, self.cursor.get(stream, at)) for stream, at in later.cursor.items()
        }
        return Passed(
            {**self.cursor, **further},
            self.state if later.state is None else later.state,
            self.missed + later.missed,
        )


@dataclass(frozen=True, slots=True)
class Received:
    """Readings of one stream at successive positions."""

    stream: str
    first: int
    readings: Sequence[Reading]
    """As they came, but that fields without a value are left out: after a restart they are read
    from the log, which knows none."""

    @property
    def last(self) -> int:
        """Position of the last one."""
        return self.first + len(self.readings) - 1


@dataclass(frozen=True, slots=True)
class Missed:
    """Readings that are not in the log."""

    stream: str
    first: int
    count: int
    reason: str
    """`lagged`: the consumer was too far behind; otherwise why they were lost, as the cloud is
    told: quota, corrupt, queue_full, …"""

    @property
    def last(self) -> int:
        """Position of the last one."""
        return self.first + self.count - 1


def passed_by_all(consumers: Iterable[ConsumerState], stream: str) -> int | None:
    """The last position that every consumer of a stream has passed; None where it has none."""
    positions = (consumer.position(stream) for consumer in consumers)
    return min((at for at in positions if at is not None), default=None)


def is_any_of(stream: str, followed: Container[str]) -> bool:
    """Is it the stream of a thing, and are all things' streams of it among those followed?"""
    of, thing = stream_and_thing(stream)
    return bool(thing) and of_all_things(of) in followed


def followed(consumer: ConsumerState, streams: Iterable[str]) -> set[str]:
    """The streams that it reads, of these."""
    return {stream for stream in streams if consumer.position(stream) is not None}


def outside(ranges: Iterable[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int]]:
    """The positions of `first` to `last` that are in none of the ranges (first, last).

    The ranges are sorted and disjoint.
    """
    for begins, ends in ranges:
        if begins > last:
            break
        if begins > first:
            yield first, begins - 1
        first = max(first, ends + 1)
    if first <= last:
        yield first, last


@dataclass(frozen=True, slots=True)
class RawBatch:
    """A row as it is read in the writer's thread; the caller decodes it."""

    stream: str
    first: int
    skip: int
    body: bytes

    def received(self) -> Received:
        """The part with its readings."""
        return Received(self.stream, self.first + self.skip, readings_of(self.body)[self.skip :])


def rows_after(
    db: sqlite3.Connection, stream: StreamState, after: int, *, readings_max: int, bytes_max: int
) -> tuple[list[RawBatch | Missed], int]:
    """The rows after a position, in order and without holes, and the position where they end.

    They are about as many as the bounds allow.
    """
    found: list[RawBatch | Missed] = []
    expected, size = after + 1, 0
    # From the row that has the next position, which may begin before it.
    begins = "coalesce((SELECT max(first) FROM batches WHERE stream = ? AND first <= ?), 0)"
    query = (
        f"SELECT first, count, crc, body FROM batches WHERE stream = ? AND first >= {begins} "  # noqa: S608
        "ORDER BY first"
    )
    for first, count, crc, body in db.execute(query, (stream.id, stream.id, expected)):
        if not is_sound_batch(stream.id, first, count, crc, body) or first + count - 1 < expected:
            continue  # damaged, or read already; what is missed for it is said with the next row
        found += _missing(db, stream, expected, first - 1)
        found.append(RawBatch(stream.name, first, max(0, expected - first), body))
        expected, size = first + count, size + len(body)
        if expected - after > readings_max or size >= bytes_max:
            return found, expected - 1
    found += _missing(db, stream, expected, stream.last)
    return found, max(stream.last, expected - 1)


def _missing(
    db: sqlite3.Connection, stream: StreamState, first: int, last: int
) -> Iterator[Missed]:
    """A hole, part by part with its reason. Where nobody gave anything up, the disk lost it."""
    if first > last:
        return
    before = gap_before(db, stream.id, first)
    for gap in [
        *([before] if before and before.last >= first else []),
        *gaps_behind(db, stream.id, first - 1, last),
    ]:
        if gap.first > first:
            yield Missed(stream.name, first, gap.first - first, CORRUPT)
        first = max(first, gap.first)
        ends = min(last, gap.last)
        yield Missed(stream.name, first, ends - first + 1, gap.reason)
        first = ends + 1
    if first <= last:
        yield Missed(stream.name, first, last - first + 1, CORRUPT)
