"""A sweep: leases that stand somewhere behind are brought to the live end by one common reading.

Pure; the reading is the caller's.

A hundred thousand leases that a proxy takes over stand at as many cursors. Reading on from each
would read the stream a hundred thousand times; a sweep reads it once from the oldest position. Per
filter and partition it keeps a running total, and each lease notes that total when the reading
passes the lease's own position there: its count is what the total has grown since.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from edgewake.cloud.log.decode import WATERMARK, Event
from edgewake.cloud.log.filters.filter_syntax import Sets
from edgewake.cloud.log.subscription import Positions
from edgewake.cloud.push.counting.matching import Matcher
from edgewake.cloud.push.counting.tally import Counter, feed
from edgewake.protocol.cursor import Position

Place: TypeAlias = tuple[int, int]
"""Which stream of the plan, which partition."""


@dataclass(slots=True)
class _Running:
    """Events that passed one filter in one partition."""

    total: int = 0
    hungry: set[Counter] = field(default_factory=set)


@dataclass(slots=True)
class _Filter:
    running: dict[Place, _Running]


@dataclass(slots=True)
class _Joiner:
    counter: Counter
    filter: _Filter
    joined_at: dict[Place, int] = field(default_factory=dict)
    """The filter's total in each partition when the reading passed the lease's position there."""

    def count(self) -> int:
        return sum(
            self.filter.running[place].total - total for place, total in self.joined_at.items()
        )


class Sweep:
    """Brings leases to the live end. `places` are all of the plan's, in order."""

    def __init__(self, places: Sequence[Place], sets: Sets | None = None) -> None:
        """`sets`: where named sets are found; what was before is judged by what they hold now."""
        self._places = places
        self._matcher: Matcher[_Filter] = Matcher(sets)
        self._joiners: dict[Counter, _Joiner] = {}
        self._waiting: dict[Place, list[tuple[Position, int, _Joiner]]] = {
            place: [] for place in places
        }
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._joiners)

    def add(self, counter: Counter, positions: Positions) -> None:
        """Let a lease join at its positions; before the reading begins. Raises FilterError."""
        found = self._matcher.get(counter.where)
        if found is None:
            found = _Filter({place: _Running() for place in self._places})
            self._matcher.add(counter.where, found)
        joiner = self._joiners[counter] = _Joiner(counter, found)
        for place in self._places:
            heapq.heappush(
                self._waiting[place], (positions[place[0]][place[1]], next(self._order), joiner)
            )

    def start(self) -> Positions:
        """Where the reading must begin: the oldest position of each partition."""
        by_stream = itertools.groupby(self._places, key=lambda place: place[0])
        return tuple(
            tuple(self._waiting[place][0][0] for place in places) for _, places in by_stream
        )

    def pass_event(
        self, event: Event, place: Place, position: Position, *, now: int
    ) -> Iterator[None]:
        """The reading passed an event.

        `position` is one after it; leases at that position or further have not counted it.

        Each step of the iterator is a little work; use it up before the next event.
        """
        waiting = self._waiting[place]
        while waiting and waiting[0][0] < position:
            self._join(place, heapq.heappop(waiting)[2])
            yield
        if event.kind != WATERMARK:
            for found in self._matcher.matches(event):
                running = found.running[place]
                running.total += 1
                yield from feed(running.hungry, event, now)

    def _join(self, place: Place, joiner: _Joiner) -> None:
        running = joiner.filter.running[place]
        joiner.joined_at[place] = running.total
        if not joiner.counter.is_fed:
            running.hungry.add(joiner.counter)

    def progress(self) -> Iterator[Counter]:
        """Give each lease the count so far, one by one."""
        for joiner in list(self._joiners.values()):
            joiner.counter.set_swept(joiner.count())
            yield joiner.counter

    def leave(self, counter: Counter) -> None:
        """A lease needs no more reading; what was counted is its own."""
        joiner = self._joiners.pop(counter, None)
        if joiner is None:
            return
        counter.set_swept(joiner.count(), is_final=True)
        for running in joiner.filter.running.values():
            running.hungry.discard(counter)

    def counters(self) -> Iterable[Counter]:
        """The leases that are being brought on."""
        return list(self._joiners)
