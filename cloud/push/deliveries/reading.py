"""What comes next of a delivery's stream: batches of events, each with the positions behind it.

Nothing is read ahead of what the endpoint takes but the rest of one chunk. `up_to` makes the batch
in hand once more, after a server died: of each partition in the same order, and the same events
unless the filter's named sets, or the right, changed meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.following.subscriber import Subscriber
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.reader import Step
from edgewake.cloud.log.request import OnGap
from edgewake.cloud.log.resume import LOSSES
from edgewake.cloud.log.steps import Steps, item
from edgewake.cloud.log.subscription import Plan, Positions, Start
from edgewake.protocol.clock import Clock, sleep_or
from edgewake.protocol.cursor import Cursor, Position
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases.delivery import EVENTS_MAX

BYTES_MAX: Final = 128 * 1024
"""Bytes of the events of a batch; the last one may pass it. What each delivery holds in memory at
most, beside the rest of a chunk."""
LOOK_S: Final = 1.0
"""Seconds without an event after which a batch without one is given, for who has to look at rights
and to keep the progress."""
AGAIN_S: Final = 0.05
"""How often it is looked whether the live end is reached: the marker that ends a stream's last
transaction wakes nobody."""
SILENCE_S: Final = 30.0
"""Seconds without progress after which a batch that is made once more is given up for now."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Events as JSON, and where their stream goes on behind them."""

    events: Sequence[bytes]
    to: Positions
    cursor: Cursor | None = None
    """Where it goes on, while gaps at its beginning are left that no positions tell of."""


class Reading:
    """Reads the batches of a delivery; `close` it, which also closes the plan."""

    def __init__(self, hub: Hub, plan: Plan, start: Start, on_gap: OnGap, clock: Clock) -> None:
        self._hub, self._plan, self._on_gap, self._clock = hub, plan, on_gap, clock
        self._news = asyncio.Event()
        self._gaps = deque(start.gaps)
        """At most one for each partition and stream, and one for the filter."""
        self.has_lost = any(gap.event.fields["reason"] in LOSSES for gap in start.gaps)
        """Is some of what lay behind the cursor not there any more?"""
        self._steps: deque[Step] = deque()
        """What is left of the last chunk: 64 KB at most."""
        self._rows: list[list[Position]] = [list(row) for row in start.positions]
        self._subscriber: Subscriber[Sequence[Step]] = hub.subscribe(
            plan, Steps(), start.positions, self._news.set
        )

    @property
    def positions(self) -> Positions:
        """Behind all that was given."""
        return tuple(map(tuple, self._rows))

    def close(self) -> None:
        """Leave the hub."""
        self._subscriber.close()
        self._hub.close(self._plan)

    async def next(self, most: int, wait_s: float) -> Batch:
        """Up to `most` events, the first of which waits `wait_s` for others; none after LOOK_S.

        Raises ViewEnded and Unavailable.
        """
        events, cursor = self._first_gaps(most)
        if self._gaps:
            return Batch(events, self.positions, cursor)
        size = sum(map(len, events))
        began_s = self._clock.monotonic_s()
        first_s = began_s if events else None
        while True:
            while self._steps and len(events) < most and size < BYTES_MAX:
                step = self._steps.popleft()
                events.append(item(step.event))
                size += len(events[-1])
                self._rows[step.stream][step.partition] = step.position
            if len(events) >= most or size >= BYTES_MAX:
                return Batch(events, self._where())
            now_s = self._clock.monotonic_s()
            if events and first_s is None:
                first_s = now_s
            ends_s = began_s + LOOK_S if first_s is None else first_s + wait_s
            if not await self._more(events) and now_s >= ends_s:
                return Batch(events, self._where())
            if not self._steps:
                await self._until_news(min(max(ends_s - now_s, 0.0), LOOK_S))

    async def up_to(self, to: Positions) -> Batch | None:
        """All that lies before `to`; the reading is of no use then. Raises as `next` does.

        None where that is more than any batch holds: another filter chose the place.
        """
        events, _ = self._first_gaps(len(self._gaps))
        size = largest = 0
        moved_s = self._clock.monotonic_s()
        while True:
            while self._steps:
                step = self._steps.popleft()
                self._rows[step.stream][step.partition] = step.position
                if step.position <= to[step.stream][step.partition]:
                    events.append(item(step.event))
                    size += len(events[-1])
                    largest = max(largest, len(events[-1]))
                if len(events) > EVENTS_MAX or size - largest >= BYTES_MAX:
                    return None
            if self._has_passed(to):
                return Batch(events, to)
            if await self._more(events):
                moved_s = self._clock.monotonic_s()
            elif self._clock.monotonic_s() - moved_s > SILENCE_S:
                raise Unavailable(f"nothing came for {SILENCE_S:.0f} s of what was read before")
            else:
                await self._until_news(AGAIN_S)

    def _first_gaps(self, most: int) -> tuple[list[bytes], Cursor | None]:
        """The next of the gaps at the beginning, and the cursor behind the last of them.

        `most` at a time as of events: an endpoint that refuses one of them is sent each alone.
        """
        found = [self._gaps.popleft() for _ in range(min(most, len(self._gaps)))]
        return [item(gap.event) for gap in found], found[-1].cursor if found else None

    async def _more(self, events: list[bytes]) -> bool:
        """Take the next chunk, or what is said of a range that is lost; False: nothing is there."""
        self._news.clear()
        found = self._subscriber.next()
        if found is None:
            return False
        if isinstance(found, Chunk):
            self._rows = [list(row) for row in found.start]
            self._steps.extend(found.content or ())
            return True
        gap = await self._hub.gap(self._subscriber, found, self._on_gap)
        events.append(item(gap.event))
        return True

    def _where(self) -> Positions:
        """Behind what was taken: behind the whole chunk where nothing is left of it."""
        if not self._steps:
            self._rows = [list(row) for row in self._subscriber.positions]
        return self.positions

    def _has_passed(self, to: Positions) -> bool:
        return all(
            at >= end
            for row, ends in zip(self._subscriber.positions, to, strict=True)
            for at, end in zip(row, ends, strict=True)
        )

    async def _until_news(self, seconds: float) -> None:
        await sleep_or(self._clock, seconds, self._news)
