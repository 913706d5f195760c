"""Passes new records to the views that show something of them, found by an index per stream.

So the cost of an event follows its recipients, and not the listeners.

A view is *indexed* where what it shows can be told by an event's values (`Plan.keys`). Its cohorts
that have read everything are *covered*: they wait here, are not touched by records that show them
nothing, and stand wherever the index has come to (`passed`). What the index finds for a view is
handed to it at once; all that is left of its filter runs on that alone.

    tick ──▶ look (records → events → views) ──▶ hand out, view by view ──▶ all have passed ──▶ …

Looking and handing out stop when their time is up and go on at their next turn. `passed` moves only
when all that was found up to there is handed out: nobody is told a position whose events he has yet
to get. A view at work reads by itself; what is found meanwhile it reads, too. What is found for a
view whose readers still write what they got before waits for them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from edgewake.cloud.log.chunks import Key as ChunkKey
from edgewake.cloud.log.decode import Decoder, Event, Record
from edgewake.cloud.log.filters.filter_keys import Key
from edgewake.cloud.log.following.event_index import EventIndex
from edgewake.cloud.log.following.turns import IsTimeUp, Turns
from edgewake.cloud.log.subscription import Plan, Positions
from edgewake.cloud.log.tail import Tail
from edgewake.protocol.cursor import Position

Row: TypeAlias = tuple[Position, ...]
"""The positions of one stream."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """An event that a view may have to show: of which stream of its plan, of which partition."""

    event: Event
    stream: int
    partition: int
    before: Position
    after: Position


class Watching(Protocol):
    """What the fan-out needs of a view."""

    plan: Plan

    def on_records(self) -> None:
        """Records came: who waits reads on."""

    def on_found(self, found: Sequence[Candidate], end: Positions, end_key: ChunkKey) -> None:
        """All there is for those who are covered between where they stand and `end`."""

    def uncover(self, which: Callable[[Positions], bool]) -> None:
        """Nobody looks for those who stand there any more: they read on."""


class Tailed(Protocol):
    """A stream as it is followed."""

    tails: list[Tail]


class _Indexed:
    """One stream's index, and how far it has come."""

    def __init__(self, tails: Sequence[Tail]) -> None:
        self.tails = tails
        self.members: EventIndex[tuple[Watching, int]] = EventIndex()
        self.passed: Row = tuple((tail.end, 0) for tail in tails)
        self.looked: Row = self.passed
        self.key: Row = self._canonical(self.passed)
        """The canonical form of `looked`."""
        self.passed_key: Row = self.key
        """The canonical form of `passed`: asked for at each event by all who were shown none."""

    def move_to(self, looked: Row) -> None:
        """The look has come so far."""
        self.looked = looked
        self.key = self._canonical(looked)

    def pass_looked(self) -> None:
        """All that was found so far is handed out."""
        self.passed, self.passed_key = self.looked, self.key

    def _canonical(self, row: Row) -> Row:
        return tuple(tail.canonical(at) for tail, at in zip(self.tails, row, strict=True))


class FanOut:
    """Passes records to views. Only records below the order `horizon` may be read."""

    def __init__(self, decoder: Decoder, turns: Turns, *, horizon: Callable[[], int]) -> None:
        self._decoder = decoder
        self._turns = turns
        self._horizon = horizon
        self._streams: dict[int, _Indexed] = {}
        """Streams by the identity of their tails; at most one for each followed stream."""
        self._lookouts: dict[Watching, Lookout] = {}
        self._found: dict[Watching, list[Candidate]] = {}
        """What one look found; handed out before the next one."""
        self._restless: set[Watching] = set()
        self._is_at_work = False
        self.looked_at = 0
        """Events that were looked for in an index since the start."""
        self.candidates = 0
        """What was found of them: how often a filter, or what is left of one, was tried."""

    @property
    def views(self) -> int:
        """How many views are indexed."""
        return len(self._lookouts)

    def add(self, view: Watching, sources: Sequence[Tailed]) -> Lookout | None:
        """Look for a view; None where it must look for itself. `remove` it when done."""
        keys = view.plan.keys
        if keys is None:
            return None
        streams: list[_Indexed] = []
        for i, (source, key) in enumerate(zip(sources, keys, strict=True)):
            stream = self._streams.get(id(source.tails))
            if stream is None:
                stream = self._streams[id(source.tails)] = _Indexed(source.tails)
            streams.append(stream)
            if not stream.members.add((view, i), key):
                self._take_out(view, streams, keys)
                return None
        lookout = self._lookouts[view] = Lookout(view, streams, keys, self._restless)
        return lookout

    def remove(self, view: Watching) -> None:
        """Look for it no longer."""
        lookout = self._lookouts.pop(view, None)
        if lookout is not None:
            self._take_out(view, lookout.streams, lookout.keys)
            self._found.pop(view, None)
            self._restless.discard(view)

    def _take_out(self, view: Watching, streams: Sequence[_Indexed], keys: Sequence[Key]) -> None:
        for i, (stream, key) in enumerate(zip(streams, keys, strict=False)):
            stream.members.remove((view, i), key)
            if not stream.members:
                self._streams.pop(id(stream.tails), None)

    def has_looked_at_oldest(self, tails: Sequence[Tail], partition: int) -> bool:
        """Has the index, where there is one, looked at a partition's oldest record?"""
        stream = self._streams.get(id(tails))
        return stream is None or stream.looked[partition][0] > tails[partition].oldest().offset

    def on_tick(self) -> None:
        """Records may have come."""
        restless = list(self._restless)
        self._restless.clear()
        for view in restless:
            view.on_records()
        if self._streams and not self._is_at_work:
            self._is_at_work = True
            self._turns.add(self._work, live=True)

    def _work(self, is_time_up: IsTimeUp) -> bool:
        is_all = True
        if not self._found:
            is_all = self._look(is_time_up)
        while self._found:
            view, found = self._found.popitem()
            lookout = self._lookouts[view]
            view.on_found(found, lookout.end, lookout.end_key)
            if is_time_up():
                break
        if self._found:
            return True
        for stream in self._streams.values():
            stream.pass_looked()
        # What came while it was handed out.
        self._is_at_work = not is_all or self._has_more()
        return self._is_at_work

    def _has_more(self) -> bool:
        horizon = self._horizon()
        return any(
            record.order <= horizon
            for stream in self._streams.values()
            for tail, position in zip(stream.tails, stream.looked, strict=True)
            if position[0] < tail.end
            for record in _first(tail.read_from(position))
        )

    def _look(self, is_time_up: IsTimeUp) -> bool:
        """Look at what came; False where there is more."""
        horizon = self._horizon()
        streams = list(self._streams.values())
        sources = []
        rows: list[list[Position]] = []
        for n, stream in enumerate(streams):
            if not all(map(Tail.has, stream.tails, stream.looked)):
                self._overrun(stream)
            rows.append(list(stream.looked))
            sources += [
                _records(n, p, tail.read_from(position), horizon)
                for p, (tail, position) in enumerate(zip(stream.tails, stream.looked, strict=True))
                if position[0] < tail.end
            ]
        is_all = True
        for _, n, partition, record in heapq.merge(*sources, key=_order):
            if not self._look_at(streams[n], partition, record, rows[n], is_time_up):
                is_all = False
                break
        for stream, row in zip(streams, rows, strict=True):
            if tuple(row) != stream.looked or is_all:
                ends = map(Tail.end_of, stream.tails, row) if is_all else row
                stream.move_to(tuple(ends))
        return is_all

    def _look_at(
        self,
        stream: _Indexed,
        partition: int,
        record: Record,
        row: list[Position],
        is_time_up: IsTimeUp,
    ) -> bool:
        """Look at a record's events; False where the time is up before or after the last."""
        events = self._decoder.events(record)
        offset, index = row[partition]
        for i in range(index if offset == record.offset else 0, len(events)):
            is_last = i + 1 == len(events)
            before = (record.offset, i)
            after = (record.offset + 1, 0) if is_last else (record.offset, i + 1)
            self.looked_at += 1
            for view, number in stream.members.find(events[i]):
                candidate = Candidate(events[i], number, partition, before, after)
                self._found.setdefault(view, []).append(candidate)
                self.candidates += 1
            row[partition] = after
            if is_time_up():
                return False
        row[partition] = (record.offset + 1, 0)
        return True

    def _overrun(self, stream: _Indexed) -> None:
        """Records came faster than they were looked at, and are in memory no more."""
        for view, lookout in self._lookouts.items():
            if stream in lookout.streams:
                view.uncover(lookout.is_overrun)
        looked = zip(stream.tails, stream.looked, strict=True)
        stream.move_to(tuple(max((tail.start, 0), position) for tail, position in looked))


class Lookout:
    """What an indexed view knows of the look-out for it."""

    def __init__(
        self,
        view: Watching,
        streams: Sequence[_Indexed],
        keys: Sequence[Key],
        restless: set[Watching],
    ) -> None:
        self.streams = streams
        self.keys = keys
        """By which it is found: of named sets, what they held then."""
        self._view = view
        self._restless = restless

    @property
    def end(self) -> Positions:
        """How far all was looked at."""
        return tuple(stream.looked for stream in self.streams)

    @property
    def end_key(self) -> ChunkKey:
        """The canonical form of `end`."""
        return tuple(stream.key for stream in self.streams)

    def covers(self, positions: Positions) -> bool:
        """Has who stands there passed all that the look-out has passed?"""
        return positions == self._passed or self._has_passed(positions, self._passed)

    def key_of(self, positions: Positions) -> ChunkKey | None:
        """The canonical form of positions, where they are what the look-out has passed."""
        if positions != self._passed:
            return None
        return tuple(stream.passed_key for stream in self.streams)

    @property
    def _passed(self) -> Positions:
        return tuple(stream.passed for stream in self.streams)

    def is_yet_to_look(self, positions: Positions) -> bool:
        """Will it look at all that comes after these positions?"""
        return self._has_passed(positions, self.end)

    def _has_passed(self, positions: Positions, others: Sequence[Row]) -> bool:
        return all(
            tail.has_passed(position, other)
            for stream, row, marks in zip(self.streams, positions, others, strict=True)
            for tail, position, other in zip(stream.tails, row, marks, strict=True)
        )

    def is_overrun(self, positions: Positions) -> bool:
        """Are records after these positions in memory no more?"""
        return not all(
            tail.has(position)
            for stream, row in zip(self.streams, positions, strict=True)
            for tail, position in zip(stream.tails, row, strict=True)
        )

    def moved(self, positions: Positions) -> Positions:
        """Where who is covered, and was last seen at `positions`, stands now."""
        return tuple(
            stream.passed
            if all(map(_is_before, row, stream.passed))
            else tuple(map(max, row, stream.passed))
            for stream, row in zip(self.streams, positions, strict=True)
        )

    def call(self) -> None:
        """Tell the view of the next records, whatever they are."""
        self._restless.add(self._view)


_Item: TypeAlias = tuple[int, int, int, Record]
"""(order, which stream, partition, record)."""


def _records(n: int, partition: int, records: Iterator[Record], horizon: int) -> Iterator[_Item]:
    for record in records:
        if record.order > horizon:
            return
        yield record.order, n, partition, record


def _first(records: Iterator[Record]) -> Iterator[Record]:
    for record in records:
        yield record
        return


def _order(item: _Item) -> int:
    return item[0]


def _is_before(position: Position, passed: Position) -> bool:
    return position <= passed
