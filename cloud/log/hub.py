"""The hub: one Kafka reader for all streams that somebody follows, their tails, and the views and readers that pull from them.

    open → Plan    follow a subscription's streams (the first reader of a stream starts it, idle ones are dropped)
    start → Start  where to begin, and the gaps to tell first
    view           the shared live end of a plan
    next → Passed  one reader's next batch, from older records or from the tails; how the push proxy reads, and clients that are behind

Everything here runs on one event loop; only Kafka's reader and the replay readers are threads. Errors: Unavailable (Kafka is away, a
limit is reached, a stream was made anew: come again), UnknownStream, FilterError, CursorError.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.catalogue import Catalogue, Topic
from edgewake.cloud.log.config import HubConfig
from edgewake.cloud.log.decode import Decoder, Record
from edgewake.cloud.log.kafka_reader import Found, KafkaReader
from edgewake.cloud.log.reader import At, Batch, Reader
from edgewake.cloud.log.replay import Block, Gone, Replay
from edgewake.cloud.log.resume import LOSSES, begin_at, from_version_1, partition_gap, resume, resume_unverified, stopped
from edgewake.cloud.log.subscription import (
    Bounds,
    Edge,
    Gap,
    OnGap,
    Plan,
    Positions,
    Request,
    Source,
    Start,
    check_filters,
    normal,
    plan,
)
from edgewake.cloud.log.tail import Tail
from edgewake.cloud.log.view import Encoder, View
from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import Cursor, CursorCodec, stream_hash
from edgewake.protocol.cursor_v1 import CursorV1
from edgewake.protocol.errors import CursorError, Unavailable
from edgewake.protocol.lease import Subscription

log = logging.getLogger("edgewake.hub")

KEEPER_S: Final = 1.0
"""How often places are told that only filtered-out events moved, and idle streams looked for."""
TICK_BYTES: Final = 1024 * 1024
"""Bytes that arrive within a tick after which it is not waited for."""
ADMIN_TIMEOUT_S: Final = 5.0
BEGIN_S: Final = 5.0
"""How long the first reader of a stream waits for Kafka to say where it begins and ends."""
BOUNDS_KEPT_S: Final = 0.5
"""How long known bounds serve clients that come back all at once; before a gap is told they are asked anew."""


class Full(Unavailable):
    """A limit of this server is reached; another server, or later, will do."""


@dataclass(eq=False)
class Followed:
    """A stream that is read. `latest` is where each partition ended when it was first followed."""

    source: Source
    tails: list[Tail]
    latest: list[int]
    readers: int = 0
    idle_since: float = 0.0
    closed: str | None = None
    """Why it can be read no further; None while it can."""
    views: set[View] = field(default_factory=set)
    bytes: int = 0
    """Of its tails."""

    def live(self) -> tuple[tuple[int, int], ...]:
        """The positions of the live end."""
        return tuple((max(tail.end, latest), 0) for tail, latest in zip(self.tails, self.latest, strict=True))


@dataclass(frozen=True, slots=True)
class Passed:
    """What a reader passed: a batch, gaps that it had to leap, or neither when it is at the end."""

    batch: Batch | None = None
    gaps: tuple[Gap, ...] = ()


class Hub:
    """See the module. `run` must run while it is used."""

    def __init__(
        self,
        config: HubConfig,
        kafka_config: KafkaConfig,
        *,
        name: str,
        codec: CursorCodec,
        clock: Clock,
        on_tick: Callable[[float], None] | None = None,
    ) -> None:
        """`on_tick` is told how many seconds each tick took."""
        self.codec = codec
        self.catalogue = Catalogue(kafka_config, name, clock)
        self.decoder = Decoder(config.decoded_bytes)
        self.replay = Replay(kafka_config, name, readers=config.replay_readers, kept_bytes=config.replay_bytes)
        self.views: dict[tuple[Subscription, str], View] = {}
        self.followed: dict[str, Followed] = {}
        self.records = 0
        """Records that came since the start."""
        self.tails_bytes = 0
        self._config = config
        self._clock = clock
        self._admin: AdminClient = clients.admin(kafka_config)
        self._kafka_config = kafka_config
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: KafkaReader | None = None
        self._reader_failed: asyncio.Future[None] | None = None
        self._following = asyncio.Lock()
        self._by_topic: dict[str, tuple[int, Followed]] = {}
        self._on_tick = on_tick
        self._assignment = 0
        self._arrival = 0
        self._tick: asyncio.TimerHandle | None = None
        self._tick_bytes = 0
        self._news: asyncio.Future[None] | None = None
        self._bounds: dict[tuple[Source, ...], tuple[float, list[list[Bounds]]]] = {}

    async def run(self) -> None:
        """Read and keep until cancelled. A dead reader thread ends it with the thread's error."""
        self._loop = asyncio.get_running_loop()
        self._reader_failed = self._loop.create_future()
        self._reader = KafkaReader(self._kafka_config, self._name, deliver=self._deliver, failed=self._fail)
        self._reader.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.catalogue.run(), name="catalogue")
                tasks.create_task(self._keep(), name="keeper")
                tasks.create_task(_raised(self._reader_failed), name="kafka-reader")
        finally:
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        assert self._reader is not None
        self._reader.stop()
        self.replay.close()
        self.catalogue.close()

    # Streams: followed while somebody reads them.

    async def open(self, subscription: Subscription) -> Plan:
        """Follow the streams of a subscription. `close` the plan when done."""
        wanted = normal(subscription)
        check_filters(wanted)
        while True:
            await self._follow(wanted.streams)
            # Between the last await and the count below nothing can drop them again.
            found = [self.followed.get(name) for name in wanted.streams]
            followed = [entry for entry in found if entry is not None]
            if len(followed) == len(found):
                break
        opened = plan(wanted, [entry.source for entry in followed])
        for entry in followed:
            entry.readers += 1
        return opened

    def close(self, opened: Plan) -> None:
        """Follow the plan's streams no longer for its sake."""
        for source in opened.sources:
            entry = self.followed.get(source.name)
            if entry is not None and entry.source == source:
                entry.readers -= 1
                entry.idle_since = self._clock.monotonic_s()

    async def _follow(self, names: tuple[str, ...]) -> None:
        if all(name in self.followed for name in names):
            return
        async with self._following:
            missing = tuple(name for name in names if name not in self.followed)
            if missing:
                if len(self.followed) + len(missing) > self._config.followed_max:
                    raise Full(f"this server already follows {len(self.followed)} streams")
                found = await self.catalogue.find(missing)
                for entry in await self._begin_patiently(found):
                    self._add(entry)

    async def _begin_patiently(self, found: Sequence[Topic]) -> list[Followed]:
        """A topic that was just made is not known to all of Kafka at once."""
        until = self._clock.monotonic_s() + BEGIN_S
        while True:
            try:
                return await self._begin(found)
            except Unavailable:
                if self._clock.monotonic_s() >= until:
                    raise
            await self._clock.sleep(0.1)

    async def _begin(self, found: Sequence[Topic]) -> list[Followed]:
        ids = await self._topic_ids([topic.topic for topic in found])
        sources = tuple(Source(t.name, t.topic, t.is_query, ids[t.topic], t.partitions) for t in found)
        bounds = await self._ask_bounds(sources)
        back = self._config.tail_back_records
        return [
            Followed(source, [Tail(max(b.earliest, b.latest - back)) for b in kept], [b.latest for b in kept])
            for source, kept in zip(sources, bounds, strict=True)
        ]

    def _add(self, entry: Followed) -> None:
        assert self._reader is not None, "run first"
        entry.idle_since = self._clock.monotonic_s()
        self._assignment += 1
        self.followed[entry.source.name] = entry
        self._by_topic[entry.source.topic] = (self._assignment, entry)
        self._reader.assign(_partitions(entry), self._assignment)

    def _drop(self, entry: Followed) -> None:
        assert self._reader is not None
        if self.followed.get(entry.source.name) is entry:
            del self.followed[entry.source.name]
            del self._by_topic[entry.source.topic]
            self.tails_bytes -= entry.bytes
            self._reader.unassign(_partitions(entry))

    def _give_up(self, entry: Followed, why: str) -> None:
        """End all who read a stream; they come back with their cursors and are told what is lost."""
        log.warning("stream %s: %s", entry.source.name, why, extra={"event": "stream.closed", "stream": entry.source.name})
        entry.closed = why
        self._drop(entry)
        for view in list(entry.views):
            view.close()
        self._tell_news()

    # What comes from Kafka.

    def _deliver(self, assignments: Mapping[str, int], batch: Sequence[Found]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._take, assignments, batch)

    def _fail(self, error: BaseException) -> None:
        assert self._loop is not None
        assert self._reader_failed is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._reader_failed.set_exception, error)

    def _take(self, assignments: Mapping[str, int], batch: Iterable[Found]) -> None:
        with self._fatal():
            self._take_batch(assignments, batch)

    def _take_batch(self, assignments: Mapping[str, int], batch: Iterable[Found]) -> None:
        for topic, partition, found in batch:
            assignment, entry = self._by_topic.get(topic, (None, None))
            if entry is None or assignment != assignments.get(topic):
                continue
            self._take_one(entry, partition, found)
        assert self._reader is not None
        self._reader.taken()
        if self._tick_bytes >= TICK_BYTES:
            self._pass_on()
        elif self._tick is None and self._tick_bytes:
            assert self._loop is not None
            self._tick = self._loop.call_later(self._config.tick_ms / 1000, self._run_tick)

    def _take_one(self, entry: Followed, partition: int, found: Record | int | None) -> None:
        match found:
            case None:
                self._give_up(entry, "what was to be read next is no longer kept")
            case int(end):
                entry.tails[partition].reaches(end)
                self._tick_bytes += 1  # who waits for the tail to get here must be woken, though no record came
            case record:
                self._arrival += 1
                self.records += 1
                record.arrival = self._arrival
                added = entry.tails[partition].append(record)
                entry.bytes += added
                self.tails_bytes += added
                self._tick_bytes += len(record.value) + 1
                self._bound(entry)

    def _bound(self, entry: Followed) -> None:
        """Evict the oldest of the stream while it is over its bound, and of the largest while all are."""
        while entry.bytes > self._config.tail_bytes:
            self._evict(entry)
        while self.tails_bytes > self._config.tails_bytes:
            self._evict(max(self.followed.values(), key=lambda other: other.bytes))

    def _evict(self, entry: Followed) -> None:
        freed = min((tail for tail in entry.tails if len(tail)), key=lambda tail: tail.oldest().arrival).evict()
        entry.bytes -= freed
        self.tails_bytes -= freed

    def _run_tick(self) -> None:
        with self._fatal():
            self._pass_on()

    @contextlib.contextmanager
    def _fatal(self) -> Iterator[None]:
        """What fails in a callback would only be logged by the loop, again and again: it ends the hub instead."""
        try:
            yield
        except Exception as error:
            assert self._reader_failed is not None
            if not self._reader_failed.done():
                self._reader_failed.set_exception(error)

    def _pass_on(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        self._tick_bytes = 0
        began = self._clock.monotonic_s()
        for view in self.views.values():
            view.advance()
        self._tell_news()
        if self._on_tick is not None:
            self._on_tick(self._clock.monotonic_s() - began)

    def _tell_news(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    async def news(self) -> None:
        """Wait until something came."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

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
        if isinstance(cursor, CursorV1):
            cursor = from_version_1(cursor, opened, await self.bounds(opened, fresh=True))
        if cursor.stop and not request.goes_on:
            return stopped(opened)
        return await self._resume(opened, cursor, request)

    def has_stream(self, cursor: str | None, name: str) -> bool:
        """Was this cursor made when there was such a stream? Then that it is not there now is no mistake of the client's."""
        with contextlib.suppress(CursorError):
            found = None if cursor is None else self.codec.decode(cursor)
            return isinstance(found, Cursor) and stream_hash(name) in {entry.stream for entry in found.streams}
        return False

    async def _resume(self, opened: Plan, cursor: Cursor, request: Request) -> Start:
        streams = {entry.stream for entry in cursor.streams}
        new = self.live(opened)
        if any(stream_hash(source.name) not in streams for source in opened.sources):
            new = (await self._start_without_cursor(opened, request.start)).positions
        begins = request.start if isinstance(request.start, Edge) else "time"
        bounds = self._tail_bounds(opened)
        found = resume(cursor, opened, bounds, request.on_gap, new=new, begins=begins)
        for fresh in (False, True):  # what is not in memory is asked for, and before a loss is told, asked for anew
            if not any(gap.event.fields["reason"] in LOSSES for gap in found.gaps):
                break
            found = resume(cursor, opened, await self.bounds(opened, fresh=fresh), request.on_gap, new=new, begins=begins)
        return found

    async def _start_without_cursor(self, opened: Plan, start: Edge | int) -> Start:
        if start is Edge.LATEST:
            return Start(self.live(opened), "latest")
        if start is Edge.EARLIEST:
            return Start(begin_at(Edge.EARLIEST, await self.bounds(opened)), "earliest")
        return Start(await self._at_time(opened, int(start)), "time")

    def live(self, opened: Plan) -> Positions:
        """The live end of a plan."""
        return tuple(entry.live() for entry in self._entries(opened))

    def _tail_bounds(self, opened: Plan) -> list[list[Bounds]]:
        """What is in memory of each partition of a plan: less than is kept."""
        return [
            [Bounds(tail.start, max(tail.end, latest)) for tail, latest in zip(entry.tails, entry.latest, strict=True)]
            for entry in self._entries(opened)
        ]

    async def bounds(self, opened: Plan, *, fresh: bool = False) -> list[list[Bounds]]:
        """What is kept of each partition of a plan."""
        now = self._clock.monotonic_s()
        asked, known = self._bounds.get(opened.sources, (-BOUNDS_KEPT_S, []))
        if fresh or now - asked >= BOUNDS_KEPT_S:
            known = await self._ask_bounds(opened.sources)
            self._bounds = {key: value for key, value in self._bounds.items() if now - value[0] < BOUNDS_KEPT_S}
            self._bounds[opened.sources] = (self._clock.monotonic_s(), known)
        return known

    async def _ask_bounds(self, sources: Sequence[Source]) -> list[list[Bounds]]:
        places = _all_partitions(sources)
        earliest = await self._offsets(places, OffsetSpec.earliest())
        latest = await self._offsets(places, OffsetSpec.latest())
        return [[Bounds(earliest[s.topic, p], latest[s.topic, p]) for p in range(s.partitions)] for s in sources]

    async def _at_time(self, opened: Plan, ms: int) -> Positions:
        """The first records that entered the cloud at `ms` or later; the end where there are none yet."""
        found = await self._offsets(_all_partitions(opened.sources), OffsetSpec.for_timestamp(ms))
        live = self.live(opened)
        return tuple(
            tuple((offset, 0) if (offset := found[source.topic, p]) >= 0 else live[i][p] for p in range(source.partitions))
            for i, source in enumerate(opened.sources)
        )

    async def _offsets(self, places: Sequence[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
        """Ask the brokers. The end is the one of committed records."""
        try:
            asked = self._admin.list_offsets(
                dict.fromkeys(places, spec), isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ADMIN_TIMEOUT_S
            )
            found = {place: await asyncio.wrap_future(future) for place, future in asked.items()}
        except KafkaException as error:
            raise Unavailable(f"Kafka: {error.args[0].str()}") from error
        return {(place.topic, place.partition): result.offset for place, result in found.items()}

    async def _topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        try:
            asked = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=ADMIN_TIMEOUT_S)
            return {name: str((await asyncio.wrap_future(future)).topic_id) for name, future in asked.items()}
        except KafkaException as error:
            raise Unavailable(f"Kafka: {error.args[0].str()}") from error

    # Readers and views.

    def reader(self, opened: Plan, positions: Positions) -> Reader:
        """A reader of an open plan."""
        return Reader(opened, [entry.tails for entry in self._entries(opened)], self.decoder, positions)

    def _entries(self, opened: Plan) -> list[Followed]:
        found = [self.followed.get(source.name) for source in opened.sources]
        entries = [entry for entry in found if entry is not None and entry.source in opened.sources]
        if len(entries) != len(found):
            raise Unavailable("a stream was made anew; come again with your cursor")
        return entries

    async def next(self, reader: Reader, on_gap: OnGap = OnGap.EARLIEST, *, until: Positions | None = None) -> Passed:
        """Go on by one batch, as far as `until` in the tails. An empty Passed: at the end, wait for `news`.

        Cancelled or failed, the reader stands where it stood. Raises Unavailable.
        """
        self._entries(reader.plan)
        cold = reader.cold()
        if not cold:
            batch = reader.read_tails(until)
            return Passed(batch) if batch.steps or batch.end != batch.start else Passed()
        at = cold[0]
        try:
            block = await self.replay.read(reader.key_of(at))
        except Gone:
            return Passed(gaps=(await self._skip_lost_range(reader, at, on_gap),))
        return self._through(reader, at, block)

    def _through(self, reader: Reader, at: At, block: Block) -> Passed:
        batch = reader.read_block(at, block.records, block.end)
        if batch.end == batch.start:
            raise Unavailable("an older record is not readable yet")
        return Passed(batch)

    async def _skip_lost_range(self, reader: Reader, at: At, on_gap: OnGap) -> Gap:
        kept = (await self.bounds(reader.plan, fresh=True))[at[0]][at[1]]
        stop = replace(reader.plan.cursor(reader.positions), stop=True)
        to = kept.latest if on_gap is OnGap.LATEST else kept.earliest
        before = reader.skip(at, to)
        event = partition_gap("retention", reader.plan.sources[at[0]].name, at[1], before, kept, to, on_gap)
        return Gap(event, stop if on_gap is OnGap.STOP else reader.plan.cursor(reader.positions))

    def view(self, opened: Plan, encoding: str, encoder: Encoder) -> View:
        """The shared view of an open plan in one encoding; made at the live end when there is none. Raises Full. `leave` it when done.

        `encoder` is used by a new view; those of one plan and `encoding` must make the same bytes.
        """
        key = (opened.subscription, encoding)
        view = self.views.get(key)
        if view is not None and not view.closed and view.plan.sources == opened.sources:
            return view
        if len(self.views) >= self._config.views_max:
            raise Full(f"this server already serves {len(self.views)} different subscriptions")
        entries = self._entries(opened)
        view = View(self.reader(opened, self.live(opened)), encoder, bytes_max=self._config.view_bytes)
        self.views[key] = view
        for entry in entries:
            entry.views.add(view)
        return view

    def leave(self, view: View, encoding: str) -> None:
        """A client left; the last one takes the view with it."""
        if view.clients:
            return
        key = (view.plan.subscription, encoding)
        if self.views.get(key) is view:
            del self.views[key]
        for entry in self.followed.values():
            entry.views.discard(view)

    # Housekeeping.

    async def _keep(self) -> None:
        checked = 0
        while True:
            await self._clock.sleep(KEEPER_S)
            for view in self.views.values():
                view.tell()
            self._drop_idle()
            if self.catalogue.generation != checked:
                checked = self.catalogue.generation
                await self._check_identity()

    def _drop_idle(self) -> None:
        now = self._clock.monotonic_s()
        for entry in list(self.followed.values()):
            if entry.readers == 0 and now - entry.idle_since >= self._config.idle_s:
                self._drop(entry)

    async def _check_identity(self) -> None:
        """Close streams whose topic was deleted, made anew or given more partitions."""
        entries = list(self.followed.values())
        known = self.catalogue.topics
        for entry in entries:
            topic = known.get(entry.source.name)
            if topic is None or topic.topic != entry.source.topic:
                self._give_up(entry, "its topic is no longer there")
            elif topic.partitions != entry.source.partitions:
                self._give_up(entry, f"its topic has {topic.partitions} partitions now")
        left = [entry for entry in entries if entry.closed is None]
        try:
            ids = await self._topic_ids([entry.source.topic for entry in left]) if left else {}
        except Unavailable:
            return
        for entry in left:
            if ids[entry.source.topic] != entry.source.topic_id:
                self._give_up(entry, "its topic was made anew")


async def _raised(failed: asyncio.Future[None]) -> None:
    await failed


def _partitions(entry: Followed) -> list[TopicPartition]:
    return [TopicPartition(entry.source.topic, p, tail.end) for p, tail in enumerate(entry.tails)]


def _all_partitions(sources: Iterable[Source]) -> list[TopicPartition]:
    return [TopicPartition(source.topic, p) for source in sources for p in range(source.partitions)]
