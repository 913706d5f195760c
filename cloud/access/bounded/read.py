"""Reads one page of a plan: up to a number of events, to the live end, or until time is up.

All clients that ask from the same position share one reading and filtering with each other, as
followers do.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable, Sequence
from typing import Final

from edgewake.cloud.access.bounded.answer import Bounds, Page
from edgewake.cloud.access.paced import thing_of
from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.following.subscriber import Subscriber, ViewEnded
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.reader import Step
from edgewake.cloud.log.request import OnGap
from edgewake.cloud.log.steps import Steps, item
from edgewake.cloud.log.subscription import Gap, Plan, Positions, Start
from edgewake.cloud.log.wanted import FREE, Pace
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of a page's events; the last one may pass it."""
READ_S: Final = 10.0
"""Seconds of reading older records after which a page ends with what it has."""
LOOK_S: Final = 0.05
"""How often a read checks whether it has reached the live end: the marker that ends a stream's last
transaction wakes nobody."""


class BoundedRead:
    """One page; `end` makes it end with what it has."""

    def __init__(
        self,
        hub: Hub,
        plan: Plan,
        start: Start,
        on_gap: OnGap,
        *,
        bounds: Bounds,
        pace: Pace = FREE,
        clock: Clock,
    ) -> None:
        """With conflation the page has of each thing the latest."""
        self._hub, self._plan, self._start, self._on_gap, self._bounds, self._clock = (
            hub,
            plan,
            start,
            on_gap,
            bounds,
            clock,
        )
        self._news = asyncio.Event()
        self._has_ended = False
        self._subscriber: Subscriber[Sequence[Step]] | None = None
        self._pace = pace
        self._items: dict[Hashable, bytes] = {}
        """By what they are about, or by their number."""
        self._superseded = self._number = self._size = 0
        for gap in start.gaps:
            self._add(gap.event, None)

    def end(self) -> None:
        """No more is read or waited for."""
        self._has_ended = True
        self._news.set()

    def so_far(self) -> Page | None:
        """The page as it is now, where there is nothing more and nothing came; else None."""
        subscriber = self._subscriber
        if self._items or subscriber is None or not self._is_live(subscriber):
            return None
        return self._page(subscriber.positions, live=True)

    async def page(self) -> Page:
        """Raises Full or Unavailable."""
        if self._start.ends:
            return self._stopped(self._start.gaps[-1])
        subscriber = self._hub.subscribe(self._plan, Steps(), self._start.positions, self._news.set)
        self._subscriber = subscriber
        try:
            return await self._read(subscriber)
        except ViewEnded as error:
            raise Unavailable(f"{error}; come again with your cursor") from error
        finally:
            self._subscriber = None
            subscriber.close()

    async def _read(self, subscriber: Subscriber[Sequence[Step]]) -> Page:
        began_s = self._clock.monotonic_s()
        while not self._has_ended:
            if self._is_full():
                return self._page(subscriber.positions, live=self._is_live(subscriber))
            self._news.clear()
            found = subscriber.next()
            if isinstance(found, Chunk):
                where = self._take(found.content or (), found.start)
                if where is not None:
                    return self._page(where, live=False)
            elif found is not None:
                gap = await self._hub.gap(subscriber, found, self._on_gap)
                self._add(gap.event, None)
                if self._on_gap is OnGap.STOP:
                    return self._stopped(gap)
            elif self._is_live(subscriber):
                left_s = began_s + self._bounds.wait_s - self._clock.monotonic_s()
                if self._items or left_s <= 0:
                    return self._page(subscriber.positions, live=True)
                await self._until_news(left_s)
            elif self._clock.monotonic_s() - began_s > max(READ_S, self._bounds.wait_s):
                break
            else:
                await self._until_news(LOOK_S)
        # It ended early: a cache that kept it would give it to who asks when there is more.
        return self._page(subscriber.positions, live=False, is_whole=False)

    def _take(self, steps: Sequence[Step], before: Positions) -> Positions | None:
        """Take a chunk's events; where the page ends, None where it does not."""
        rows = [list(row) for row in before]
        for number, step in enumerate(steps, 1):
            rows[step.stream][step.partition] = step.position
            thing = None
            if self._pace.conflate_ms is not None:
                thing = thing_of(self._plan, step.stream, step.event, self._pace.per)
            self._add(step.event, thing)
            if number < len(steps) and self._is_full():
                return tuple(map(tuple, rows))
        return None

    def _add(self, event: Event, thing: Hashable) -> None:
        if thing is None:
            self._number += 1
            thing = self._number
        before = self._items.pop(thing, None)
        if before is not None:
            self._size -= len(before)
            self._superseded += event.kind == DATA
        data = self._items[thing] = item(event)
        self._size += len(data)

    def _is_full(self) -> bool:
        return len(self._items) >= self._bounds.limit or self._size >= BYTES_MAX

    def _is_live(self, subscriber: Subscriber[Sequence[Step]]) -> bool:
        return subscriber.is_at_end and self._hub.has_caught_up(self._plan)

    async def _until_news(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def _page(self, positions: Positions, *, live: bool, is_whole: bool = True) -> Page:
        cursor = self._hub.codec.encode(self._plan.cursor(positions))
        return Page(tuple(self._items.values()), cursor, live, self._superseded, is_whole)

    def _stopped(self, gap: Gap) -> Page:
        cursor = self._hub.codec.encode(gap.cursor)
        return Page(tuple(self._items.values()), cursor, False, self._superseded)
