"""How the proxy reads: by cursor from a hub, like any client.

Filters, positions and older records are the hub's. Watermarks are no reason to wake and are not counted; a gap that a device or the
sequencer reported is an event like any other.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.cohort import Lost
from edgewake.cloud.log.config import HubConfig
from edgewake.cloud.log.decode import DATA, WATERMARK, Event
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.reader import Batch
from edgewake.cloud.log.subscriber import ViewEnded
from edgewake.cloud.log.subscription import OnGap, Plan, Positions, Request, Start, normal
from edgewake.cloud.push.watch import Seen
from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import Cursor, CursorCodec, stream_hash
from edgewake.protocol.errors import CursorError, Unavailable
from edgewake.protocol.lease import Subscription

MIB: Final = 1024 * 1024
HUB: Final = HubConfig(tail_bytes=MIB, tails_bytes=16 * MIB, decoded_bytes=4 * MIB, replay_bytes=4 * MIB, chunks_bytes=8 * MIB)
"""Smaller than an access server's: a wake-up may be some seconds late."""
EVENT_OVERHEAD_BYTES: Final = 1000
"""Memory of an event beside its data, roughly."""
MOVED_S: Final = 30.0
"""A cursor that only filtered-out events moved is given so late, so that retention does not overtake it."""
READS_PER_S_MAX: Final = 2000
"""Leases that look at news in a second, all together; with n leases each looks every n / READS_PER_S_MAX seconds at most."""
PACE_S_MIN: Final = 0.02


class HubWatch:
    """Opens subscriptions on a hub of its own. `run` must run."""

    def __init__(self, config: KafkaConfig, codec: CursorCodec, clock: Clock, *, name: str) -> None:
        self._hub = Hub(HUB, config, name=name, codec=codec, clock=clock)
        self._clock = clock
        self._open = 0

    async def run(self) -> None:
        """Read Kafka until cancelled."""
        await self._hub.run()

    async def open(self, subscription: Subscription, cursor: str) -> HubWatched:
        """See the port."""
        decoded = self._hub.codec.decode(cursor)
        plan = await self._hub.open(subscription)
        try:
            if isinstance(decoded, Cursor) and not {entry.stream for entry in decoded.streams} & set(
                map(stream_hash, subscription.streams)
            ):
                raise CursorError("subscription", "the cursor belongs to other streams than the subscription names")
            start = await self._hub.start(plan, Request(normal(subscription), cursor))
            watched = HubWatched(self, self._hub, plan, start)
        except BaseException:
            self._hub.close(plan)
            raise
        self._open += 1
        return watched

    async def pace(self) -> None:
        """Wait until the next look."""
        await self._clock.sleep(max(PACE_S_MIN, self._open / READS_PER_S_MAX))

    def left(self) -> None:
        """One subscription less."""
        self._open -= 1


class _Events:
    """What a subscriber of the proxy is given: the events themselves, for all leases that stand at the same place."""

    name = "events"
    event_bytes = 0

    def encode(self, batch: Batch) -> tuple[Sequence[Event], int]:
        """The events of a batch, and their memory, roughly."""
        events = tuple(step.event for step in batch.steps)
        return events, sum(len(event.data) + EVENT_OVERHEAD_BYTES for event in events)


class HubWatched:
    """See the port."""

    def __init__(self, watch: HubWatch, hub: Hub, plan: Plan, start: Start) -> None:
        self._watch = watch
        self._hub = hub
        self._plan = plan
        self._news = asyncio.Event()
        self._subscriber = hub.subscribe(plan, _Events(), start.positions, self._news.set)
        self._returned = start.positions
        self._gap = bool(start.gaps)
        self._closed = False

    async def next(self, *, previews_max: int) -> Seen:
        """See the port."""
        while True:
            self._news.clear()
            try:
                item = self._subscriber.next()
            except ViewEnded as error:
                raise Unavailable(str(error)) from error
            if isinstance(item, Lost):
                await self._hub.gap(self._subscriber, item, OnGap.EARLIEST)
                self._gap = True
            if item is not None or self._gap:
                return self._seen((item.content if isinstance(item, Chunk) else None) or (), previews_max)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MOVED_S):
                    await self._news.wait()
                    await self._watch.pace()
            if not self._news.is_set() and self._subscriber.positions != self._returned:
                return self._seen((), previews_max)

    def _seen(self, content: Sequence[Event], previews_max: int) -> Seen:
        events = [event for event in content if event.kind != WATERMARK]
        previews = [event.fields for event in events if event.kind == DATA]
        gap, self._gap = self._gap, False
        self._returned = self._subscriber.positions
        return Seen(
            cursor=self._cursor(self._returned),
            count=len(events),
            previews=previews[: max(0, previews_max)],
            first_at=_received_at(previews[0]) if previews else None,
            gap=gap,
            more=not self._subscriber.is_at_end,
        )

    def skip_to_end(self) -> str:
        """See the port."""
        self._subscriber.skip_to(self._hub.live(self._plan))
        self._returned = self._subscriber.positions
        return self._cursor(self._returned)

    def _cursor(self, positions: Positions) -> str:
        return self._hub.codec.encode(self._plan.cursor(positions))

    def close(self) -> None:
        """See the port."""
        if not self._closed:
            self._closed = True
            self._watch.left()
            self._subscriber.close()
            self._hub.close(self._plan)


def _received_at(fields: Mapping[str, Any]) -> int | None:
    at = fields.get("received_at")
    return at if isinstance(at, int) else None
