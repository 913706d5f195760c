"""The latest of streams that somebody asks for, kept up to date from the hub, each with the cursor of exactly what it has.

The first question about a stream reads back `TTL_S` of it, RECORDS_MAX of each partition at most, and follows it from there on; after
IDLE_S without a question it is dropped. So a question costs nothing but its answer, and a stream that nobody asks for costs nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final

from edgewake.cloud.access.latest import Latest
from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.hub import Full, Hub
from edgewake.cloud.log.reader import Batch, Step
from edgewake.cloud.log.subscriber import Subscriber, ViewEnded
from edgewake.cloud.log.subscription import LogEnd, OnGap, Plan, Positions, Request
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.lease import Subscription

log = logging.getLogger("edgewake.access")

TTL_S: Final = 3600.0
"""How long a row is shown after it was last heard of; also how far back a store begins."""
RECORDS_MAX: Final = 20_000
"""Records of a partition that a store begins before the live end at most: some seconds of reading."""
STORES_MAX: Final = 16
"""Streams and queries at a time: each decodes all that comes of it, and holds up to latest.ROWS_MAX rows."""
IDLE_S: Final = 60.0
FIRST_S: Final = 12.0
"""How long the first question waits until the store has read up to the live end."""
FIRST_LOOK_S: Final = 0.05
"""How often the first question looks whether the store is there."""
EVENTS_A_TURN: Final = 200
"""Events taken in before other clients have their turn."""
_EVENT_BYTES: Final = 1000


class _Steps:
    """What the hub gives a store: the events themselves."""

    name = "latest"
    event_bytes = 0

    def encode(self, batch: Batch) -> tuple[Sequence[Step], int]:
        """The events of a batch, and their memory, roughly."""
        return tuple(batch.steps), sum(len(step.event.data) + _EVENT_BYTES for step in batch.steps)


class LatestStores:
    """All of them; `run` must run."""

    def __init__(self, hub: Hub, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._stores: dict[str, _Store] = {}
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.Future()

    async def answer(self, name: str) -> bytes:
        """{"name", "rows", "left_out", "cursor"}. Raises UnknownStream and Unavailable."""
        store = self._stores.get(name)
        if store is None:
            store = await self._started(name)
        store.asked_s = self._clock.monotonic_s()
        try:
            async with asyncio.timeout(FIRST_S):
                await store.ready.wait()
        except TimeoutError:
            raise Unavailable(f"{name}: its last hour is still being read") from None
        return store.answer()

    async def _started(self, name: str) -> _Store:
        (topic,) = await self._hub.catalogue.find((name,))
        if name in self._stores:
            return self._stores[name]
        if len(self._stores) >= STORES_MAX:
            raise Full(f"the latest of {STORES_MAX} streams is kept already")
        assert self._tasks is not None, "run first"
        keys = self._hub.catalogue.group_columns(name) if topic.is_query else None
        if topic.is_query and keys is None:
            raise Unavailable(f"the analysis has not said yet by what {name} is grouped")
        store = self._stores[name] = _Store(name, Latest(keys, ttl_s=TTL_S), self._hub, self._clock)
        self._tasks.create_task(self._follow(store), name=f"latest-{name}")
        return store

    async def _follow(self, store: _Store) -> None:
        """What ends a store, a stream made anew or Kafka away, is met by a new one at the next question."""
        try:
            await store.run()
        except (Unavailable, LookupError, ViewEnded) as error:
            log.info("latest of %s: %s", store.name, error, extra={"event": "latest.ended"})
        finally:
            del self._stores[store.name]
            store.end()


class _Store:
    """One of them."""

    def __init__(self, name: str, latest: Latest, hub: Hub, clock: Clock) -> None:
        self.name = name
        self.asked_s = clock.monotonic_s()
        self.ready = asyncio.Event()
        self._latest, self._hub, self._clock = latest, hub, clock
        self._subscriber: Subscriber[Sequence[Step]] | None = None
        self._plan: Plan | None = None
        self._taken: Positions = ()
        """What `_latest` has: the cursor of the answer."""

    async def run(self) -> None:
        """Follow until nobody asked for IDLE_S. Raises Unavailable, LookupError and ViewEnded."""
        plan = self._plan = await self._hub.open(Subscription(streams=(self.name,)))
        try:
            news = asyncio.Event()
            self._taken = await self._begin(plan)
            self._subscriber = self._hub.subscribe(plan, _Steps(), self._taken, news.set)
            try:
                await self._take_all(self._subscriber, news)
            finally:
                self._subscriber.close()
        finally:
            self._hub.close(plan)

    def answer(self) -> bytes:
        """Raises Unavailable where it has ended."""
        if self._plan is None or not self._taken:
            raise Unavailable(f"{self.name} cannot be read at the moment")
        rows = b",".join(self._latest.rows(self._clock.monotonic_s()))
        cursor = self._hub.codec.encode(self._plan.cursor(self._taken))
        return b'{"name":"%s","left_out":%d,"cursor":"%s","rows":[%s]}' % (
            self.name.encode(),
            self._latest.left_out,
            cursor.encode(),
            rows,
        )

    def end(self) -> None:
        """Whoever waits for it waits no longer."""
        self._taken = ()
        self.ready.set()

    async def _begin(self, plan: Plan) -> Positions:
        since = self._clock.now_ms() - int(TTL_S * 1000)
        start = await self._hub.start(plan, Request(plan.subscription, start=since if since > 0 else LogEnd.EARLIEST))
        bounds = (await self._hub.bounds(plan))[0]
        live = self._hub.live(plan)[0]
        return (
            tuple(
                max(at, (max(kept.earliest, end[0] - RECORDS_MAX), 0))
                for at, kept, end in zip(start.positions[0], bounds, live, strict=True)
            ),
        )

    async def _take_all(self, subscriber: Subscriber[Sequence[Step]], news: asyncio.Event) -> None:
        while self._clock.monotonic_s() - self.asked_s < IDLE_S:
            news.clear()
            item = subscriber.next()
            if isinstance(item, Chunk):
                await self._take(item.content or (), subscriber.positions)
                continue
            if item is not None:
                await self._hub.gap(subscriber, item, OnGap.EARLIEST)
            self._taken = subscriber.positions
            if subscriber.is_at_end and self._plan is not None and self._hub.has_caught_up(self._plan):
                self.ready.set()
            with contextlib.suppress(TimeoutError):
                # What the stream's last transaction ends with is no record, so nobody is woken for it.
                async with asyncio.timeout(IDLE_S / 10 if self.ready.is_set() else FIRST_LOOK_S):
                    await news.wait()

    async def _take(self, steps: Sequence[Step], to: Positions) -> None:
        """Take a chunk in pieces; after each the cursor is that of its last event."""
        now_s = self._clock.monotonic_s()
        row = list(self._taken[0])
        for number, step in enumerate(steps, 1):
            self._latest.take(step.event, now_s)
            row[step.partition] = step.position
            if number % EVENTS_A_TURN == 0:
                self._taken = (tuple(row),)
                await asyncio.sleep(0)
        self._taken = to
