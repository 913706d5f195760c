"""The proxy's eyes: the access tier's hub, read by cursor like any client reads it.

Filters, positions, cold and hot reading are the hub's. Watermarks are no reason to wake and are not counted; a gap that a device or the
sequencer reported is an event like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.config import HubConfig
from edgewake.cloud.log.decode import DATA, WATERMARK
from edgewake.cloud.log.hub import Hub, Passed
from edgewake.cloud.log.reader import Reader
from edgewake.cloud.log.subscription import Plan, Positions, Request, normal
from edgewake.cloud.push.watch import Seen
from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import Cursor, CursorCodec, stream_hash
from edgewake.protocol.errors import CursorError
from edgewake.protocol.lease import Subscription

MIB: Final = 1024 * 1024
HUB: Final = HubConfig(tail_bytes=MIB, tails_bytes=16 * MIB, decoded_bytes=4 * MIB, replay_bytes=4 * MIB)
"""Less than an access server has: nobody waits for a wake-up with his eyes on a screen."""
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
            watched = HubWatched(self, self._hub, plan, self._hub.reader(plan, start.positions), gap=bool(start.gaps))
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


class HubWatched:
    """See the port."""

    def __init__(self, watch: HubWatch, hub: Hub, plan: Plan, reader: Reader, *, gap: bool) -> None:
        self._watch = watch
        self._hub = hub
        self._plan = plan
        self._reader = reader
        self._gap = gap
        self._closed = False

    async def next(self, *, previews_max: int) -> Seen:
        """See the port."""
        while True:
            passed = await self._hub.next(self._reader)
            if passed.batch is not None or passed.gaps or self._gap:
                seen = self._seen(passed, previews_max)
                self._gap = False
                return seen
            await self._hub.news()
            await self._watch.pace()

    def _seen(self, passed: Passed, previews_max: int) -> Seen:
        batch = passed.batch
        events = [step.event for step in batch.steps if step.event.kind != WATERMARK] if batch else []
        previews = [event.fields for event in events if event.kind == DATA]
        return Seen(
            cursor=self._cursor(self._reader.positions),
            count=len(events),
            previews=previews[: max(0, previews_max)],
            first_at=_received_at(previews[0]) if previews else None,
            gap=self._gap or bool(passed.gaps),
            more=bool(passed.gaps) or bool(batch and batch.full) or bool(self._reader.cold()),
        )

    def skip_to_end(self) -> str:
        """See the port."""
        live, here = self._hub.live(self._plan), self._reader.positions
        for stream, partition in self._reader.all_at():
            end = live[stream][partition]
            if end > here[stream][partition]:
                self._reader.skip((stream, partition), end[0])
        return self._cursor(self._reader.positions)

    def _cursor(self, positions: Positions) -> str:
        return self._hub.codec.encode(self._plan.cursor(positions))

    def close(self) -> None:
        """See the port."""
        if not self._closed:
            self._closed = True
            self._watch.left()
            self._hub.close(self._plan)


def _received_at(fields: Mapping[str, Any]) -> int | None:
    at = fields.get("received_at")
    return at if isinstance(at, int) else None
