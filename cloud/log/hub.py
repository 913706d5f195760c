"""The hub: one Kafka reader for all streams that somebody follows, and the views that serve them.

Wiring only.

    open → Plan              follow a subscription's streams (the first reader of a stream starts
                             it, idle ones are dropped)
    start → Start            where to begin, and the gaps to announce first
    subscribe → Subscriber   one reader, from there on: it shares readings and bytes with all who
                             stand at the same place
    gap → Gap                go on behind a range that is no longer kept

Everything here runs on one event loop; only Kafka's reader and the replay readers are threads.
Errors: Unavailable (Kafka is away, a limit is reached, a stream was recreated: come again),
UnknownStream, FilterError, CursorError.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.ask_kafka import AskKafka, SingleFlight
from edgewake.cloud.log.catalogue import Catalogue, Topic, UnknownStream
from edgewake.cloud.log.chunks import Chunks
from edgewake.cloud.log.decode import Decoder
from edgewake.cloud.log.following.behind import Behind, behind
from edgewake.cloud.log.following.block_slots import BlockSlots
from edgewake.cloud.log.following.cohort import Lost
from edgewake.cloud.log.following.fan_out import FanOut
from edgewake.cloud.log.following.followed import Followed, FollowedStreams
from edgewake.cloud.log.following.subscriber import Standing, Subscriber, ViewEnded
from edgewake.cloud.log.following.turns import Turns
from edgewake.cloud.log.following.view import Encoding, Shared
from edgewake.cloud.log.following.views import Views
from edgewake.cloud.log.hub_bounds import Full, HubBounds
from edgewake.cloud.log.kafka_reader import Found, KafkaReader
from edgewake.cloud.log.replay import Replay
from edgewake.cloud.log.request import LogEnd, OnGap, Request, normal, through
from edgewake.cloud.log.resume import (
    LOSSES,
    partition_gap,
    resume,
    resume_unverified,
    start_positions,
    stopped,
)
from edgewake.cloud.log.subscription import (
    Bounds,
    Gap,
    Plan,
    Positions,
    Source,
    Start,
    check_filters,
    plan,
    scopes_of,
)
from edgewake.cloud.log.tail import Tail
from edgewake.cloud.log.wanted import wanted as subscribed
from edgewake.cloud.rights.principal import ANYBODY, Action, Principal
from edgewake.cloud.traces.events import EventTraces
from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import Cursor, CursorCodec, stream_hash
from edgewake.protocol.errors import CursorError, Unavailable
from edgewake.protocol.leases.lease import Subscription

log = logging.getLogger("edgewake.hub")

HOUSEKEEPING_S: Final = 1.0
"""Seconds between two checks for idle streams and unused chunks."""
TICK_BYTES: Final = 1024 * 1024
"""Bytes of a tick from which it ends early."""
FIRST_ANSWER_S: Final = 5.0
"""Seconds that the first reader of a stream waits for Kafka to report its bounds."""

C = TypeVar("C")


class Hub:
    """The hub of one server; see the module. `run` must run while it is used."""

    def __init__(
        self,
        config: HubBounds,
        kafka_config: KafkaConfig,
        *,
        name: str,
        codec: CursorCodec,
        clock: Clock,
        on_tick: Callable[[float], None] | None = None,
        has_named: bool = False,
        traces: EventTraces | None = None,
    ) -> None:
        """A hub that follows nothing yet.

        `on_tick` receives the seconds that each tick took. `has_named`: are there named sets and
        publications here? `traces`: makes spans of traced events; None: they are as any others.
        """
        self.traces = traces
        self.codec = codec
        self.catalogue = Catalogue(kafka_config, name, clock, has_named=has_named)
        self.kafka = AskKafka(kafka_config, clock)
        self.decoder = Decoder(config.decoded_bytes)
        self.streams = FollowedStreams(
            config,
            on_lost=lambda entry: self._close(entry, "the next records are not kept any more"),
            is_looked_at=lambda tails, partition: self.fan_out.has_looked_at_oldest(
                tails, partition
            ),
        )
        self.replay = Replay(
            kafka_config,
            name,
            readers=config.replay_readers,
            kept_bytes=config.replay_bytes,
            failed=self._fail,
        )
        self.block_slots = BlockSlots(config.blocks_max)
        self.chunks = Chunks(config.chunks_bytes)
        self.turns = Turns(clock, budget_s=config.slice_ms / 1000, on_error=self._fail)
        self.fan_out = FanOut(self.decoder, self.turns, horizon=lambda: self.streams.horizon)
        self.cohorts_reading = 0
        """Positions at which chunks are being made: the cost of catching up."""
        self._config = config
        self._clock = clock
        self._reader = KafkaReader(
            kafka_config,
            name,
            deliver=self._deliver,
            failed=self._fail,
            now_ms=None if traces is None else traces.now_ms,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failed: asyncio.Future[None] | None = None
        self._opening: SingleFlight[str, None] = SingleFlight(self._follow_one)
        self._on_tick = on_tick
        self._tick: asyncio.TimerHandle | None = None
        self._tick_bytes = 0
        shared = Shared(
            self.decoder,
            self.replay,
            self.block_slots,
            self.chunks,
            self.turns,
            clock,
            horizon=lambda: self.streams.horizon,
            call_later=self._call_later,
            on_cohorts=self._count_cohorts,
        )
        self.views = Views(shared, self.fan_out, self._entries, most=config.views_max)

    async def run(self) -> None:
        """Read and serve until cancelled. A dead reader thread ends it with the thread's error."""
        self._loop = asyncio.get_running_loop()
        self._failed = self._loop.create_future()
        self._reader.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.catalogue.run(), name="catalogue")
                tasks.create_task(self._do_housekeeping(), name="housekeeping")
                tasks.create_task(_raised(self._failed), name="kafka-reader")
        finally:
            self.turns.close()
            await asyncio.to_thread(self._close_all)

    def _close_all(self) -> None:
        self._reader.stop()
        self.replay.close()
        self.catalogue.close()

    # Streams: followed while somebody reads them.

    async def check(
        self, names: tuple[str, ...], reader: Principal, action: Action = Action.READ
    ) -> None:
        """Raises UnknownStream, or Unavailable, for streams that a reader may not see.

        A hidden stream is answered as slowly as a missing one, and neither answer suggests other
        names.
        """
        unseen = tuple(
            name
            for name in names
            if name not in self.catalogue.topics or not reader.may(action, name)
        )
        if unseen:
            await self.catalogue.find(unseen, reader, action)

    async def check_names(
        self,
        subscription: Subscription,
        names: tuple[str, ...],
        reader: Principal,
        action: Action = Action.READ,
    ) -> None:
        """Check the streams of a subscription; all who may open a publication may read its streams.

        Raises UnknownStream or Unavailable.
        """
        publication = subscribed(subscription).publication
        if publication is None:
            return await self.check(names, reader, action)
        try:
            await self.check(names, ANYBODY, action)
        except UnknownStream as error:
            raise Unavailable(
                f"publication {publication.name!r}: not all of its streams are there at the moment"
            ) from error

    async def resolved(self, asked: Request, reader: Principal) -> Request:
        """A request that is checked, with the streams of its publication where it names one.

        Raises UnknownPublication, UnknownStream, FilterError or Unavailable.
        """
        if asked.publication is not None:
            found = await self.catalogue.find_publication(asked.publication, reader)
            asked = through(asked, found)
        await self.check_filters(asked.subscription, reader)
        await self.check_names(asked.subscription, asked.subscription.streams, reader)
        return asked

    async def check_filters(self, subscription: Subscription, reader: Principal) -> None:
        """Raises FilterError; Unavailable where it cannot be said whether a named set is there."""
        where, _ = check_filters(subscription, self.catalogue.named)
        if where is not None and where.sets:
            await self.catalogue.check_sets(where.sets, reader)

    async def open(
        self,
        subscription: Subscription,
        reader: Principal,
        action: Action = Action.READ,
        *,
        is_kept: bool = False,
    ) -> Plan:
        """Follow the streams of a subscription, as far as `reader` may see them.

        `close` the plan. `is_kept`: it was admitted before; a named set of it that was removed
        since then passes nothing.
        """
        wanted = normal(subscription)
        if not is_kept:
            await self.check_filters(wanted, reader)
        await self.check_names(wanted, wanted.streams, reader, action)
        sources: list[Source] = []
        try:
            for name in wanted.streams:
                sources.append(await self._follow(name))
            return plan(
                wanted,
                sources,
                scopes_of(wanted, reader, action),
                sets=self.catalogue.named,
                groups_of=self.catalogue.group_columns,
            )
        except BaseException:
            self._give_back(sources)
            raise

    def close(self, opened: Plan) -> None:
        """Follow the plan's streams no longer for its sake."""
        self._give_back(opened.sources)

    async def _follow(self, name: str) -> Source:
        """Follow a stream for one reader more; from then on no other stream takes its place."""
        while (entry := self.streams.by_name.get(name)) is None:
            await self._opening.get(name)
        entry.readers += 1
        return entry.source

    def _give_back(self, sources: Iterable[Source]) -> None:
        for source in sources:
            entry = self.streams.by_name.get(source.name)
            # A stream that was closed and is followed again has readers of its own.
            if entry is not None and entry.source is source:
                entry.readers -= 1
                entry.idle_since = self._clock.monotonic_s()

    async def _follow_one(self, name: str) -> None:
        if name in self.streams.by_name:
            # Another opened it while this one waited for the streams before it.
            return
        self._make_room()
        (topic,) = await self.catalogue.find((name,), ANYBODY)
        entry = await self._ask_patiently(topic)
        self._make_room()
        entry.idle_since = self._clock.monotonic_s()
        self.streams.add(entry)
        self._reader.assign(entry.partitions(), entry.assignment)

    def _make_room(self) -> None:
        """Make room for one more stream in place of the one unread for longest. Raises Full."""
        if len(self.streams.by_name) < self._config.followed_max:
            return
        idle = [entry for entry in self.streams.by_name.values() if entry.readers == 0]
        if not idle:
            raise Full(f"this server already follows {len(self.streams.by_name)} streams")
        self._drop(min(idle, key=lambda entry: entry.idle_since))

    async def _ask_patiently(self, topic: Topic) -> Followed:
        """Ask about a topic until Kafka knows it: a new one is not known everywhere at once."""
        until = self._clock.monotonic_s() + FIRST_ANSWER_S
        while True:
            try:
                return await self._ask_about(topic)
            except Unavailable:
                if self._clock.monotonic_s() >= until:
                    raise
            await self._clock.sleep(0.1)

    async def _ask_about(self, topic: Topic) -> Followed:
        ids = await self.kafka.topic_ids([topic.topic])
        source = Source(topic.name, topic.topic, topic.is_query, ids[topic.topic], topic.partitions)
        (kept,) = await self.kafka.bounds((source,), fresh=True)
        back = self._config.tail_back_records
        return Followed(
            source, [Tail(max(b.earliest, b.latest - back)) for b in kept], [b.latest for b in kept]
        )

    def _drop(self, entry: Followed) -> None:
        if self.streams.drop(entry):
            self._reader.unassign(entry.partitions())

    def _close(self, entry: Followed, why: str) -> None:
        """End all readers of a stream; they come back with their cursors and get the gaps."""
        log.warning(
            "stream %s: %s",
            entry.source.name,
            why,
            extra={"event": "stream.closed", "stream": entry.source.name},
        )
        entry.closed = why
        self._drop(entry)
        for view in list(entry.views):
            view.end(ViewEnded(why))

    # What comes from Kafka.

    def _deliver(self, assignments: Mapping[str, int], batch: Sequence[Found]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._on_batch, assignments, batch)

    def _fail(self, error: BaseException) -> None:
        """End the hub with this error; any thread may call it."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._set_failed, error)

    def _set_failed(self, error: BaseException) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    def _on_batch(self, assignments: Mapping[str, int], batch: Sequence[Found]) -> None:
        with self._fatal():
            self._tick_bytes += self.streams.add_batch(assignments, batch)
            self._reader.make_room()
            if self._tick_bytes >= TICK_BYTES:
                self._pass_on()
            elif self._tick is None and self._tick_bytes:
                self._tick = asyncio.get_running_loop().call_later(
                    self._config.tick_ms / 1000, self._run_tick
                )

    def _run_tick(self) -> None:
        with self._fatal():
            self._pass_on()

    @contextlib.contextmanager
    def _fatal(self) -> Iterator[None]:
        """End the hub at an error in a callback, which the loop would only log, again and again."""
        try:
            yield
        except Exception as error:
            self._set_failed(error)

    def _pass_on(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        self._tick_bytes = 0
        for view in self.streams.tick():
            view.on_records()
        self.fan_out.on_tick()
        if self._on_tick is not None:
            self._on_tick(self.turns.longest_s)
        self.turns.longest_s = 0.0

    def _call_later(self, seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, call)

    def _count_cohorts(self, change: int) -> None:
        self.cohorts_reading += change

    # Where to begin.

    async def start(self, opened: Plan, request: Request) -> Start:
        """Where a request begins; raises CursorError (garbage) or Unavailable."""
        if request.cursor is None:
            return await self._start_without_cursor(opened, request.start)
        try:
            cursor = self.codec.decode(request.cursor)
        except CursorError as error:
            if error.reason != "unverifiable":
                raise
            return resume_unverified(opened, await self.bounds(opened, fresh=True), request.on_gap)
        if cursor.stop and not request.goes_on:
            return stopped(opened)
        return await self._resume(opened, cursor, request)

    def has_stream(self, cursor: str | None, name: str) -> bool:
        """Was there such a stream when this cursor was made?

        Then its absence now is not the client's mistake.
        """
        with contextlib.suppress(CursorError):
            if cursor is not None:
                return stream_hash(name) in {
                    entry.stream for entry in self.codec.decode(cursor).streams
                }
        return False

    async def _resume(self, opened: Plan, cursor: Cursor, request: Request) -> Start:
        streams = {entry.stream for entry in cursor.streams}
        new = self.live(opened)
        if any(stream_hash(source.name) not in streams for source in opened.sources):
            new = (await self._start_without_cursor(opened, request.start)).positions
        begins = request.start if isinstance(request.start, LogEnd) else "time"
        bounds = self._tail_bounds(opened)
        found = resume(cursor, opened, bounds, request.on_gap, new=new, begins=begins)
        # Kafka is asked for what memory lacks, and asked again before a loss is reported.
        for fresh in (False, True):
            if not any(gap.event.fields["reason"] in LOSSES for gap in found.gaps):
                break
            found = resume(
                cursor,
                opened,
                await self.bounds(opened, fresh=fresh),
                request.on_gap,
                new=new,
                begins=begins,
            )
        return found

    async def _start_without_cursor(self, opened: Plan, start: LogEnd | int) -> Start:
        if start is LogEnd.LATEST:
            return Start(self.live(opened), "latest")
        if start is LogEnd.EARLIEST:
            return Start(start_positions(LogEnd.EARLIEST, await self.bounds(opened)), "earliest")
        return Start(await self._at_time(opened, int(start)), "time")

    def live(self, opened: Plan) -> Positions:
        """The live end of a plan."""
        return tuple(entry.live() for entry in self._entries(opened))

    def behind(self, opened: Plan, positions: Positions) -> Behind:
        """How far a reader at `positions` is behind. Raises Unavailable."""
        return behind(self._entries(opened), positions, now_ms=self._clock.now_ms())

    def has_caught_up(self, opened: Plan) -> bool:
        """Do the tails of a plan reach to where its streams ended when they were first followed?"""
        return all(entry.has_caught_up() for entry in self._entries(opened))

    def _tail_bounds(self, opened: Plan) -> list[list[Bounds]]:
        """The bounds of each partition of a plan in memory, which has less than Kafka."""
        return [
            [
                Bounds(tail.start, max(tail.end, latest))
                for tail, latest in zip(entry.tails, entry.latest, strict=True)
            ]
            for entry in self._entries(opened)
        ]

    async def bounds(self, opened: Plan, *, fresh: bool = False) -> list[list[Bounds]]:
        """The bounds of each partition of a plan in Kafka; `fresh`: asked for now."""
        return await self.kafka.bounds(opened.sources, fresh=fresh)

    async def _at_time(self, opened: Plan, ms: int) -> Positions:
        """The first records that entered the cloud at `ms` or later, or the end."""
        found = await self.kafka.offsets_at(opened.sources, ms)
        live = self.live(opened)

        def begin(topic: str, partition: int, end: tuple[int, int]) -> tuple[int, int]:
            offset = found[topic, partition]
            return (offset, 0) if offset >= 0 else end

        return tuple(
            tuple(begin(source.topic, p, live[i][p]) for p in range(source.partitions))
            for i, source in enumerate(opened.sources)
        )

    def _entries(self, opened: Plan) -> list[Followed]:
        found = [self.streams.by_name.get(source.name) for source in opened.sources]
        entries = [entry for entry in found if entry is not None and entry.source in opened.sources]
        if len(entries) != len(found):
            raise Unavailable("a stream was recreated; come again with your cursor")
        return entries

    # Views.

    def subscribe(
        self, opened: Plan, encoding: Encoding[C], positions: Positions, wake: Callable[[], None]
    ) -> Subscriber[C]:
        """A reader of an open plan, from `positions` on.

        Raises Full or Unavailable. `close` it when done, then the plan.

        `wake` is called when there is something after `next` gave None. Of one plan and
        `encoding.name` all encodings must be the same.
        """
        return self.views.of(opened, encoding).subscribe(positions, wake)

    async def gap(self, subscriber: Standing, lost: Lost, on_gap: OnGap) -> Gap:
        """Move a subscriber behind a range that is not kept any more; returns the gap to announce.

        Raises Unavailable.
        """
        opened = subscriber.view.plan
        kept = (await self.bounds(opened, fresh=True))[lost.at[0]][lost.at[1]]
        stop = replace(opened.cursor(subscriber.positions), stop=True)
        to = kept.latest if on_gap is OnGap.LATEST else kept.earliest
        before = subscriber.skip(lost.at, to)
        event = partition_gap(
            "retention", opened.sources[lost.at[0]].name, lost.at[1], before, kept, to, on_gap
        )
        return Gap(event, stop if on_gap is OnGap.STOP else opened.cursor(subscriber.positions))

    # Housekeeping.

    async def _do_housekeeping(self) -> None:
        checked = 0
        while True:
            await self._clock.sleep(HOUSEKEEPING_S)
            self.chunks.drop_unused(self._clock.monotonic_s())
            self._drop_idle()
            self.views.follow_named(self.catalogue.named)
            if self.catalogue.generation != checked:
                checked = self.catalogue.generation
                await self._check_identity()

    def _drop_idle(self) -> None:
        now = self._clock.monotonic_s()
        for entry in list(self.streams.by_name.values()):
            if entry.readers == 0 and now - entry.idle_since >= self._config.idle_s:
                self._drop(entry)

    async def _check_identity(self) -> None:
        """Close streams whose topic was deleted, recreated or given more partitions."""
        entries = list(self.streams.by_name.values())
        known = self.catalogue.topics
        for entry in entries:
            topic = known.get(entry.source.name)
            if topic is None or topic.topic != entry.source.topic:
                self._close(entry, "its topic was deleted")
            elif topic.partitions != entry.source.partitions:
                self._close(entry, f"its topic has {topic.partitions} partitions now")
        left = [entry for entry in entries if entry.closed is None]
        try:
            ids = await self.kafka.topic_ids([entry.source.topic for entry in left]) if left else {}
        except Unavailable:
            return
        for entry in left:
            if ids[entry.source.topic] != entry.source.topic_id:
                self._close(entry, "its topic was recreated")


async def _raised(failed: asyncio.Future[None]) -> None:
    await failed
