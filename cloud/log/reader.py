"""Makes one chunk: walks through a plan's records and collects the events that it shows.

Records come from the tails where their positions are in them, else from blocks of older records.
All partitions of all streams are merged by `Record.order`, oldest first, so that retention cannot
run over one partition while another one is read.

A chunk ends where the reader has room for no more, at a border, or at the end of what there is.
Borders are a property of the records and not of the place where a reader began: readers that began
at different places end their chunks at the same one soon, and from there on they share them. A
reader that has used up its time stops between two events and goes on where it stopped.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias

from edgewake.cloud.log.decode import Decoder, Event, Record
from edgewake.cloud.log.replay import Block, BlockKey
from edgewake.cloud.log.subscription import Plan, Positions
from edgewake.cloud.log.tail import Tail
from edgewake.protocol.cursor import Position

CHUNK_BYTES: Final = 64 * 1024
"""Bytes to be sent, cursors included, after which a chunk ends; its last event may pass it. What a
slow client holds back at most."""
BORDER_BYTES: Final = 16 * 1024
"""Bytes of stored records between two borders, on average."""
EVENTS_PER_LOOK: Final = 8
"""Events between two looks at the clock; fewer where the filters are expensive."""

At: TypeAlias = tuple[int, int]
"""Which stream of the plan, which partition."""


class Stop(Enum):
    """The reasons for which a reader stopped."""

    COMPLETE = auto()
    """The chunk is full, or at a border."""
    TIME = auto()
    """The time is used up; there is more."""
    BLOCK = auto()
    """The next block of older records is needed."""
    END = auto()
    """No more records are left."""


@dataclass(frozen=True, slots=True)
class Step:
    """A shown event and its partition's position after it."""

    event: Event
    stream: int
    partition: int
    position: Position


@dataclass(frozen=True, slots=True)
class Batch:
    """What a plan shows between two positions."""

    start: Positions
    end: Positions
    steps: Sequence[Step]


def is_border(record: Record) -> bool:
    """Does a chunk end after this record?

    A hash of its offset decides (Knuth's multiplicative one), the more likely the larger the record
    is.
    """
    return (record.offset * 2_654_435_761) & 0xFFFF_FFFF < len(record.value) * (
        2**32 // BORDER_BYTES
    )


class Reader:
    """Makes the chunk that begins at `positions`.

    `tails[stream][partition]` are the hub's own; `event_bytes`: an event's own overhead.
    """

    def __init__(
        self,
        plan: Plan,
        tails: Sequence[Sequence[Tail]],
        decoder: Decoder,
        positions: Positions,
        *,
        event_bytes: int,
    ) -> None:
        self._events_per_look = min(EVENTS_PER_LOOK, plan.events_per_look)
        self._plan = plan
        self._tails = tails
        self._decoder = decoder
        self._start = positions
        self._positions = [list(partitions) for partitions in positions]
        self._steps: list[Step] = []
        self._event_bytes = event_bytes
        self._room = CHUNK_BYTES
        self._has_moved = False

    @property
    def has_moved(self) -> bool:
        """Is there a chunk, even if nothing of it is shown?"""
        return self._has_moved

    def older(self) -> list[At]:
        """Partitions whose position is older than their tail."""
        return [
            (i, p)
            for i, partitions in enumerate(self._positions)
            for p, position in enumerate(partitions)
            if not self._tails[i][p].has(position)
        ]

    def block_key(self, at: At) -> BlockKey:
        """What to ask replay for to go on in an older partition."""
        source = self._plan.sources[at[0]]
        return source.topic, source.topic_id, at[1], self._positions[at[0]][at[1]][0]

    def read(
        self, blocks: Mapping[At, Block], *, horizon: int, is_time_up: Callable[[], bool]
    ) -> Stop:
        """Walk on.

        Older partitions without a block in `blocks` stay where they are; so do records of an order
        past `horizon`.
        """
        sources = [
            self._older_records(at, block)
            for at, block in blocks.items()
            if not self._tail(at).has(self._position(at))
        ]
        for i, partitions in enumerate(self._positions):
            for p, position in enumerate(partitions):
                tail = self._tails[i][p]
                if tail.has(position) and position[0] < tail.end:
                    sources.append(_tail_records(i, p, tail.read_from(position), horizon))
        for _, stream, partition, record in (
            sources[0] if len(sources) == 1 else heapq.merge(*sources, key=_order)
        ):
            if record is None:
                self._pass_block((stream, partition), blocks[stream, partition])
                return Stop.BLOCK
            stop = self._pass(stream, partition, record, is_time_up)
            if stop is not None:
                return stop
        return Stop.END

    def batch(self, *, is_at_end: bool) -> Batch:
        """The chunk so far.

        At the end of the tails the positions stand at their ends, past what holds no records.
        """
        if is_at_end:
            for i, partitions in enumerate(self._positions):
                for p, position in enumerate(partitions):
                    partitions[p] = self._tails[i][p].end_of(position)
        return Batch(self._start, tuple(map(tuple, self._positions)), self._steps)

    def _tail(self, at: At) -> Tail:
        return self._tails[at[0]][at[1]]

    def _position(self, at: At) -> Position:
        return self._positions[at[0]][at[1]]

    def _older_records(self, at: At, block: Block) -> Iterator[_Item]:
        first = self._position(at)[0]
        order = 0
        for record in block.records:
            if record.offset >= first:
                order = record.order
                yield order, *at, record
        yield order, *at, None

    def _pass_block(self, at: At, block: Block) -> None:
        if self._position(at)[0] < block.end:
            self._positions[at[0]][at[1]] = (block.end, 0)
            self._has_moved = True

    def _pass(
        self, stream: int, partition: int, record: Record, is_time_up: Callable[[], bool]
    ) -> Stop | None:
        """Pass a record's events; return why it stopped, None where it may go on."""
        events = self._decoder.events(record)
        positions = self._positions[stream]
        offset, index = positions[partition]
        first = index if offset == record.offset else 0
        for i in range(first, len(events)):
            if self._room <= 0:
                return Stop.COMPLETE
            if (i + 1) % self._events_per_look == 0 and is_time_up():
                return Stop.TIME
            shown = self._plan.show(events[i], stream)
            after = (record.offset, i + 1) if i + 1 < len(events) else (record.offset + 1, 0)
            positions[partition] = after
            self._has_moved = True
            if shown is not None:
                self._steps.append(Step(shown, stream, partition, after))
                self._room -= len(shown.data) + self._event_bytes
        positions[partition] = (record.offset + 1, 0)
        self._has_moved = True
        if is_border(record):
            return Stop.COMPLETE
        return Stop.TIME if is_time_up() else None


_Item: TypeAlias = tuple[int, int, int, Record | None]
"""(order, stream, partition, record); no record: the block ends here."""


def _tail_records(
    stream: int, partition: int, records: Iterable[Record], horizon: int
) -> Iterator[_Item]:
    for record in records:
        if record.order > horizon:
            return
        yield record.order, stream, partition, record


def _order(item: _Item) -> int:
    return item[0]
