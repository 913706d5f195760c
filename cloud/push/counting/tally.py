"""Counts the events that leases have not seen, once per filter for all that share it. Pure.

A Tally counts the events that pass one filter. A lease's Counter remembers the tally's total when
the lease joined, so its own count is a subtraction and an event costs the same whether one lease or
fifty thousand have the filter. A counter is called (`on_change`) at its first event, when
`min_events` is reached, when part of its range is lost, and when it has reached the live end; never
for other events.

One event may concern a hundred thousand leases of one filter. So they are notified one by one, as
the caller goes through the iterator that it gets, and the caller may do something else between any
two.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.push.leases.wake_policy import COUNT_MAX, Unseen

_order: Final = itertools.count()
"""Breaks ties in heaps; counters have no order."""


class Counter:
    """What one lease has not seen."""

    __slots__ = (
        "_base", "_before", "_gap", "_oldest_at", "_swept", "_tally", "failed", "is_behind",
        "lease_id", "min_events", "on_change",
        "previews", "previews_max", "streams", "where",
    )  # fmt: skip

    def __init__(
        self,
        lease_id: str,
        *,
        streams: tuple[str, ...],
        where: str | None = None,
        min_events: int = 1,
        previews_max: int = 0,
        on_change: Callable[[str], None],
        count: int = 0,
        gap: bool = False,
    ) -> None:
        """`count` and `gap`: what was counted up to where it joins."""
        self.lease_id = lease_id
        self.streams = streams
        self.where = where
        self.min_events = min_events
        self.previews_max = previews_max
        self.on_change = on_change
        self.previews: list[Mapping[str, Any]] = []
        """The first events that it counted."""
        self.is_behind = True
        """It has not reached the live end yet: more is there already."""
        self.failed: str | None = None
        """Why its subscription cannot be resumed; it counts no more."""
        self._tally: Tally | None = None
        self._base = 0
        self._before = count
        self._swept = 0
        self._gap = gap
        # It came before the lease was taken over, who knows when.
        self._oldest_at: int | None = 0 if count else None

    @property
    def count(self) -> int:
        """Events counted since the client's cursor."""
        return (
            self._before
            + self._swept
            + (0 if self._tally is None else self._tally.total - self._base)
        )

    @property
    def unseen(self) -> Unseen:
        """The count as the wake policy wants it."""
        return Unseen(min(self.count, COUNT_MAX), self._oldest_at, self._gap)

    @property
    def is_fed(self) -> bool:
        """Has it seen its first events?"""
        return self._oldest_at is not None and len(self.previews) >= self.previews_max

    def attach(self, tally: Tally) -> None:
        """Count on at the live end."""
        self._tally, self._base = tally, tally.total
        tally.counters.add(self)
        self.is_behind = False
        if not self.is_fed and self._before == 0:
            tally.hungry.add(self)
        missing = self.min_events - self.count
        if missing > 0 and self.min_events > 1:
            heapq.heappush(tally.thresholds, (tally.total + missing, next(_order), self))

    def detach(self) -> None:
        """Leave the live end; what was counted stays."""
        if self._tally is not None:
            self._before, tally = self.count - self._swept, self._tally
            self._tally = None
            tally.counters.discard(self)
            tally.hungry.discard(self)

    def is_of(self, tally: Tally) -> bool:
        """Does it count with this tally?"""
        return self._tally is tally

    def set_swept(self, count: int, *, is_final: bool = False) -> None:
        """Set the number of events before the live end, as far as is known.

        `is_final`: that is all of them.
        """
        self._swept = count
        if is_final:
            self._before, self._swept = self._before + count, 0

    def mark_gap(self) -> None:
        """Part of its range is lost."""
        if not self._gap:
            self._gap = True
            self.on_change(self.lease_id)

    def fail(self, why: str) -> None:
        """Its subscription cannot be resumed."""
        self.failed = why
        self.on_change(self.lease_id)

    def see(self, event: Event, now: int) -> None:
        """Remember one of the first events."""
        if self._oldest_at is None:
            received_at = event.fields.get("received_at")
            self._oldest_at = min(now, received_at) if isinstance(received_at, int) else now
            self.on_change(self.lease_id)
        if event.kind == DATA and len(self.previews) < self.previews_max:
            self.previews.append(event.fields)


class Tally:
    """Events that passed one filter at the live end, since the tally was made."""

    __slots__ = ("counters", "hungry", "thresholds", "total", "where")

    def __init__(self, where: str | None) -> None:
        self.where = where
        self.total = 0
        self.counters: set[Counter] = set()
        self.hungry: set[Counter] = set()
        """Counters that have not seen their first events yet."""
        self.thresholds: list[tuple[int, int, Counter]] = []
        """(total at which a counter has its min_events, order, counter)."""

    def add(self, event: Event, now: int) -> Iterator[None]:
        """Count an event that passed, and return an iterator over the leases it concerns.

        It must be used up before the next event is added.
        """
        self.total += 1
        return self._tell(event, now)

    def _tell(self, event: Event, now: int) -> Iterator[None]:
        yield from feed(self.hungry, event, now)
        while self.thresholds and self.thresholds[0][0] <= self.total:
            _, __, counter = heapq.heappop(self.thresholds)
            if counter.is_of(self):
                counter.on_change(counter.lease_id)
            yield


def feed(hungry: set[Counter], event: Event, now: int) -> Iterator[None]:
    """Show an event, one by one, to counters that have not seen their first ones.

    Those that have enough leave the set.
    """
    if hungry:
        for counter in list(hungry):
            if counter in hungry:  # it may have left meanwhile
                counter.see(event, now)
                if counter.is_fed:
                    hungry.discard(counter)
                yield
