"""A reader: one place in one plan, and the way on from there, hot (from the tails) or cold (from Kafka's older records).

What leaves are batches: the events that the plan shows, each with the position after it, in the order in which this process got the
records (cold ones: partition by partition). After a batch the reader stands at its end; a reader that is asked again goes on from there.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from edgewake.cloud.log.decode import Decoder, Event, Record
from edgewake.cloud.log.replay import Key
from edgewake.cloud.log.subscription import Plan, Positions
from edgewake.cloud.log.tail import Tail
from edgewake.protocol.cursor import Position

BATCH_BYTES: Final = 64 * 1024
"""Bytes of shown events after which a batch ends; its last event may pass it. What a slow client can hold back at most."""
BATCH_EVENTS: Final = 4000
"""Events, shown or not, after which a batch ends, so that a sparse filter over a long past does not hold up the event loop."""

At: TypeAlias = tuple[int, int]
"""Which stream of the plan, which partition."""


@dataclass(frozen=True, slots=True)
class Step:
    """A shown event and its partition's position after it."""

    event: Event
    stream: int
    partition: int
    position: Position


@dataclass(frozen=True, slots=True)
class Batch:
    """What a reader passed on its way from `start` to `end`."""

    start: Positions
    end: Positions
    steps: Sequence[Step]
    untold: bool
    """The last step's cursor is not yet that of `end`: filtered-out events were passed."""
    full: bool
    """There was more."""


class Reader:
    """A place in a plan. `tails[stream][partition]` are the hub's own."""

    def __init__(self, plan: Plan, tails: Sequence[Sequence[Tail]], decoder: Decoder, positions: Positions) -> None:
        self.plan = plan
        self._tails = tails
        self._decoder = decoder
        self._positions = [list(partitions) for partitions in positions]

    @property
    def positions(self) -> Positions:
        """Where it stands."""
        return tuple(map(tuple, self._positions))

    def all_at(self) -> Iterator[At]:
        """Every stream and partition."""
        return ((i, p) for i, partitions in enumerate(self._positions) for p in range(len(partitions)))

    def cold(self) -> list[At]:
        """Partitions whose position is older than their tail."""
        return [(i, p) for i, p in self.all_at() if not self._tails[i][p].has(self._positions[i][p])]

    def is_at(self, positions: Positions) -> bool:
        """Are all events before `positions`, and no others, behind it?"""
        return all(self._tails[i][p].same_place(self._positions[i][p], positions[i][p]) for i, p in self.all_at())

    def read_tails(self, until: Positions | None = None) -> Batch:
        """Go on through the tails, as far as `until` (which has no index inside a record) or to their ends. Nothing may be cold."""
        parts = [self._tail_records(i, p, None if until is None else until[i][p][0]) for i, p in self.all_at()]
        records = parts[0] if len(parts) == 1 else heapq.merge(*parts, key=_arrival)
        return self._walk(records)

    def key_of(self, at: At) -> Key:
        """What to ask replay for to go on in a cold partition."""
        source = self.plan.sources[at[0]]
        return source.topic, source.topic_id, at[1], self._positions[at[0]][at[1]][0]

    def read_block(self, at: At, records: Iterable[Record], end: int) -> Batch:
        """Go on through a block of a cold partition."""
        batch = self._walk((*at, record) for record in records if record.offset >= self._positions[at[0]][at[1]][0])
        if not batch.full and self._positions[at[0]][at[1]][0] < end:
            self._positions[at[0]][at[1]] = (end, 0)
        return _batch(batch.start, self.positions, batch.steps, batch.full)

    def skip(self, at: At, offset: int) -> Position:
        """Leave what is gone of a partition behind; the position before."""
        before = self._positions[at[0]][at[1]]
        self._positions[at[0]][at[1]] = (offset, 0)
        return before

    def skip_to_tails(self) -> None:
        """Stand at the end of all tails, or where it is when that is further."""
        for i, p in self.all_at():
            self._positions[i][p] = max(self._positions[i][p], (self._tails[i][p].end, 0))

    def _tail_records(self, stream: int, partition: int, until: int | None) -> Iterator[tuple[int, int, Record]]:
        for record in self._tails[stream][partition].read_from(self._positions[stream][partition]):
            if until is not None and record.offset >= until:
                return
            yield stream, partition, record

    def _walk(self, records: Iterable[tuple[int, int, Record]]) -> Batch:
        start = self.positions
        steps: list[Step] = []
        room = _Room()
        for stream, partition, record in records:
            finished = self._pass(stream, partition, record, steps, room)
            if not finished:
                return _batch(start, self.positions, steps, True)
        return _batch(start, self.positions, steps, False)

    def _pass(self, stream: int, partition: int, record: Record, steps: list[Step], room: _Room) -> bool:
        """Pass a record's events; False when the room ends before they do."""
        events = self._decoder.events(record)
        positions = self._positions[stream]
        offset, index = positions[partition]
        first = index if offset == record.offset else 0
        for i in range(first, len(events)):
            if room.is_full():
                return False
            after = (record.offset, i + 1) if i + 1 < len(events) else (record.offset + 1, 0)
            shown = self.plan.show(events[i])
            if shown is not None:
                steps.append(Step(shown, stream, partition, after))
            room.take(shown)
            positions[partition] = after
        positions[partition] = (record.offset + 1, 0)
        return True


class _Room:
    """How much a batch still takes."""

    __slots__ = ("bytes", "events")

    def __init__(self) -> None:
        self.bytes = BATCH_BYTES
        self.events = BATCH_EVENTS

    def is_full(self) -> bool:
        return self.bytes <= 0 or self.events <= 0

    def take(self, shown: Event | None) -> None:
        self.events -= 1
        if shown is not None:
            self.bytes -= len(shown.data)


def _batch(start: Positions, end: Positions, steps: Sequence[Step], full: bool) -> Batch:
    told = [list(partitions) for partitions in start]
    for step in steps:
        told[step.stream][step.partition] = step.position
    return Batch(start, end, steps, tuple(map(tuple, told)) != end, full)


def _arrival(item: tuple[int, int, Record]) -> int:
    return item[2].arrival
