"""Counts for all leases: it reads each set of streams once, and matches each event once.

A StreamWatcher follows one set of streams at the live end. Leases that are further back are brought
there by sweeps: those whose records are still in memory at once, the others by a reading of older
records that may take minutes and holds up nobody else. The work is cut into turns of TURN_S, so
that requests, calls and other streams go on beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from edgewake.cloud.client_share import Bound
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.chunks import Chunk
from edgewake.cloud.log.decode import WATERMARK
from edgewake.cloud.log.following.cohort import Lost
from edgewake.cloud.log.following.subscriber import Subscriber, ViewEnded
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import HubBounds
from edgewake.cloud.log.reader import Batch, Step
from edgewake.cloud.log.request import OnGap, Request, RequestError, normal
from edgewake.cloud.log.resume import LOSSES
from edgewake.cloud.log.subscription import DEVICE_ALONE, Plan, Positions
from edgewake.cloud.push.counting.filter_admission import VALUES_MAX, FilterAdmission
from edgewake.cloud.push.counting.matching import Matcher
from edgewake.cloud.push.counting.sweep import Sweep
from edgewake.cloud.push.counting.tally import Counter, Tally
from edgewake.cloud.push.leases.wake_policy import COUNT_MAX
from edgewake.cloud.rights.principal import ANYBODY, Action, Principal
from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import Cursor, CursorCodec, stream_hash
from edgewake.protocol.errors import CursorError, EdgewakeError, FilterError, Unavailable
from edgewake.protocol.leases.lease import Subscription
from edgewake.protocol.ops.publication import Publication

log = logging.getLogger("edgewake.push")

MIB: Final = 1024 * 1024
HUB: Final = HubBounds(
    tail_bytes=MIB,
    tails_bytes=16 * MIB,
    decoded_bytes=4 * MIB,
    replay_bytes=4 * MIB,
    chunks_bytes=8 * MIB,
    blocks_max=32,
)
"""Smaller than an access server's: a wake-up may be some tenths of a second late."""
EVENT_OVERHEAD_BYTES: Final = 1000
"""Memory of an event beside its data, roughly."""
TURN_S: Final = 0.005
"""Seconds of counting before everything else gets its turn."""
PACE_S: Final = 0.05
"""Between two looks at a stream that has news: what came in between is counted together."""
RETRY_S: Final = 1.0
"""Between attempts to follow streams while Kafka is away."""
REPORT_S: Final = 5.0
"""Seconds between two reports of the count so far to leases that are far behind."""
MANY: Final = 10_000
"""Leases that came to the live end together. They live long, so the cycle collector, which would
stop everything for a fifth of a second to go through a hundred thousand, passes them over from then
on. Not for fewer: what is garbage at that moment is never collected."""
IDLE_S: Final = 10.0
"""Seconds that streams are followed without a lease."""


class TooManyFilters(EdgewakeError):
    """The bound on filters that are evaluated for every event is reached."""


class Watchers:
    """The port `edgewake.cloud.push.counting.watch.Watch` on a hub. `run` must run."""

    def __init__(
        self,
        config: KafkaConfig,
        codec: CursorCodec,
        clock: Clock,
        *,
        name: str,
        scanned_filters_max: int,
        client_share: float = 1,
    ) -> None:
        """`scanned_filters_max`: filters of one set of streams that no index finds, at most."""
        self._scanned = Bound(
            "filters that demand no value of a field", scanned_filters_max, client_share
        )
        self._values = Bound("values in lists of filters", VALUES_MAX, client_share)
        self._hub = Hub(HUB, config, name=name, codec=codec, clock=clock, has_named=True)
        self._clock = clock
        self._tasks: asyncio.TaskGroup | None = None
        self._watchers: dict[tuple[str, ...], StreamWatcher] = {}

    async def run(self) -> None:
        """Read Kafka until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await self._hub.run()

    @property
    def hub(self) -> Hub:
        """The hub that is read."""
        return self._hub

    @property
    def behind(self) -> int:
        """Leases that are not at the live end yet."""
        return sum(watcher.behind for watcher in self._watchers.values())

    async def check(
        self, subscription: Subscription, cursor: str, client: str, reader: Principal
    ) -> None:
        """See the port."""
        decoded = self._hub.codec.decode(cursor)
        wanted = normal(subscription)
        self._hub.close(await self._hub.open(wanted, reader, Action.WAKE))
        streams = set(map(stream_hash, wanted.streams))
        if isinstance(decoded, Cursor) and not streams & {
            entry.stream for entry in decoded.streams
        }:
            raise CursorError(
                "subscription", "the cursor belongs to other streams than the subscription names"
            )
        refused = self._watcher(wanted.streams).filters.refusal(
            wanted.where, client, scanned=self._scanned, values=self._values
        )
        if refused is not None:
            raise TooManyFilters(refused)

    async def things(
        self, streams: tuple[str, ...], reader: Principal
    ) -> Mapping[str, Sequence[str]]:
        """See the port."""
        await self._hub.check(streams, reader, Action.WAKE)
        columns = self._hub.catalogue.group_columns
        return {name: columns(name) or DEVICE_ALONE for name in streams}

    async def published(self, name: str, reader: Principal) -> Publication:
        """See the port."""
        await self._hub.catalogue.find_publication(name, reader, Action.WAKE)
        return await self._hub.catalogue.find_publication(name, reader)

    async def check_sets(self, subscription: Subscription, reader: Principal) -> None:
        """See the port."""
        await self._hub.check_filters(subscription, reader)

    def has_changed(self, publication: str, version: int) -> bool:
        """See the port. While nothing is read yet, nothing has changed."""
        catalogue = self._hub.catalogue
        if catalogue.named is None or not catalogue.looked.is_set():
            return False
        found = catalogue.named.publication(publication)
        return found is None or found.version != version

    def add(self, counter: Counter, cursor: str) -> None:
        """See the port."""
        self._watcher(counter.streams).add(counter, cursor)

    def _watcher(self, streams: tuple[str, ...]) -> StreamWatcher:
        """The watcher of these streams, made for the first caller; later callers share it.

        Without a lease it soon ends.
        """
        watcher = self._watchers.get(streams)
        if watcher is None:
            assert self._tasks is not None, "run first"
            watcher = self._watchers[streams] = StreamWatcher(
                streams, self._hub, self._clock, on_idle=self._drop
            )
            self._tasks.create_task(watcher.run(), name=f"watch-{'+'.join(streams)}")
        return watcher

    def _drop(self, watcher: StreamWatcher) -> None:
        del self._watchers[watcher.streams]

    def remove(self, counter: Counter) -> None:
        """See the port."""
        watcher = self._watchers.get(counter.streams)
        if watcher is not None:
            watcher.remove(counter)

    def cursor(self, counter: Counter) -> str | None:
        """See the port."""
        watcher = self._watchers.get(counter.streams)
        return None if watcher is None or counter.is_behind else watcher.cursor()


class _Steps:
    """What the hub gives a watcher: the events themselves, each with its position."""

    name = "steps"
    event_bytes = 0

    def encode(self, batch: Batch) -> tuple[Sequence[Step], int]:
        """The events of a batch, and their memory, roughly."""
        return tuple(batch.steps), sum(
            len(step.event.data) + EVENT_OVERHEAD_BYTES for step in batch.steps
        )


class _Turns:
    """Lets others run when the current turn has lasted TURN_S."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic_s()

    async def breathe(self) -> None:
        """Call between any two small pieces of work."""
        if self._clock.monotonic_s() - self._began > TURN_S:
            await asyncio.sleep(0)
            self._began = self._clock.monotonic_s()


class StreamWatcher:
    """All leases on one set of streams."""

    def __init__(
        self,
        streams: tuple[str, ...],
        hub: Hub,
        clock: Clock,
        *,
        on_idle: Callable[[StreamWatcher], None],
    ) -> None:
        self.streams = streams
        self._hub = hub
        self._clock = clock
        self._on_idle = on_idle
        self._matcher: Matcher[Tally] = Matcher(hub.catalogue.named)
        self._cursors: dict[Counter, str] = {}
        """Leases that are not at the live end yet, and where they are to begin."""
        self.filters = FilterAdmission(lambda: self._matcher, clock, lambda: bool(self._cursors))
        self._new: list[Counter] = []
        self._far: list[tuple[Counter, Positions]] = []
        self._has_new = asyncio.Event()
        self._has_far = asyncio.Event()
        self._plan: Plan | None = None
        self._counting = asyncio.Lock()
        """Locked while events after `_counted` are being counted, or leases join there."""
        self._counted: Positions = ()
        self._cursor: str | None = None
        self._turns = _Turns(clock)

    # What the proxy asks for

    @property
    def hub(self) -> Hub:
        """The hub that is read."""
        return self._hub

    @property
    def behind(self) -> int:
        """Leases that are not at the live end yet."""
        return len(self._cursors)

    def add(self, counter: Counter, cursor: str) -> None:
        """Bring a lease from its cursor to the live end."""
        counter.is_behind = True
        self._cursors[counter] = cursor
        self._new.append(counter)
        self._has_new.set()

    def remove(self, counter: Counter) -> None:
        """Count for a lease no more."""
        self._cursors.pop(counter, None)
        counter.detach()
        self._forget(counter.where)

    def _forget(self, where: str | None) -> None:
        tally = self._matcher.get(where)
        if tally is not None and not tally.counters:
            self._matcher.remove(where)

    def cursor(self) -> str | None:
        """The cursor at the live end up to which events are counted.

        None during counting, when the counts are already further than a cursor can say.
        """
        return None if self._counting.locked() else self._end_cursor()

    def _end_cursor(self) -> str | None:
        if self._cursor is None and self._plan is not None:
            self._cursor = self._hub.codec.encode(self._plan.cursor(self._counted))
        return self._cursor

    # Following

    async def run(self) -> None:
        """Count until IDLE_S pass without a lease."""
        while True:
            try:
                if await self._follow():
                    return
            except* Unavailable as group:
                log.info(
                    "streams %s: %s; following again",
                    ",".join(self.streams),
                    group.exceptions[0],
                    extra={"event": "push.watch_anew"},
                )
                self._start_over()
                await self._clock.sleep(RETRY_S)

    async def _follow(self) -> bool:
        """Follow the streams; True when nobody needs it any more."""
        try:
            plan = await self._hub.open(Subscription(streams=self.streams), ANYBODY)
        except (LookupError, RequestError) as error:
            # A stream that is not there, or they have more partitions together than may be read.
            await self._fail_all(str(error.args[0]))
            return self._end_if_idle()
        try:
            self._plan = plan
            async with asyncio.TaskGroup() as tasks:
                self._set_counted(self._hub.live(plan))
                sweeping = [
                    tasks.create_task(self._sweep_new()),
                    tasks.create_task(self._sweep_far()),
                ]
                await self._count_live(plan)
                for task in sweeping:
                    task.cancel()
            return True
        finally:
            self._end_cursor()  # where everybody who has arrived goes on, whatever comes next
            self._hub.close(plan)
            self._plan = None

    def _start_over(self) -> None:
        """Start over: every lease begins again from its count, because the streams have changed."""
        cursor = self._cursor
        for tally in list(self._matcher.targets()):
            for counter in list(tally.counters):
                counter.detach()
                if cursor is not None:
                    self._cursors[counter] = cursor
        self._matcher = Matcher(self._hub.catalogue.named)
        for counter in self._cursors:
            counter.set_swept(0)
            counter.is_behind = True
        self._far.clear()
        self._new = list(self._cursors)
        self._has_new.set()

    async def _fail_all(self, why: str) -> None:
        for counter in list(self._cursors):
            self._cursors.pop(counter, None)
            counter.fail(why)
            await self._turns.breathe()
        self._new.clear()

    async def _count_live(self, plan: Plan) -> None:
        """Count what comes; ends after IDLE_S without a lease."""
        news = asyncio.Event()
        live = self._hub.subscribe(plan, _Steps(), self._counted, news.set)
        used_at = self._clock.monotonic_s()
        try:
            while True:
                news.clear()
                item = _next(live)
                if isinstance(item, Chunk):
                    async with self._counting:
                        await self._count(item.content or (), live.positions)
                    continue
                if item is not None:
                    await self._hub.gap(live, item, OnGap.EARLIEST)
                    await self._mark_gap()
                self._set_counted(live.positions)
                now = self._clock.monotonic_s()
                if len(self._matcher) or self._cursors:
                    used_at = now
                elif now - used_at > IDLE_S and self._end_if_idle():
                    return
                await self._wait(news, IDLE_S)
        finally:
            live.close()

    def _end_if_idle(self) -> bool:
        if len(self._matcher) or self._cursors:
            return False
        self._on_idle(self)
        return True

    async def _wait(self, news: asyncio.Event, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await news.wait()
                await self._clock.sleep(PACE_S)

    async def _count(self, steps: Sequence[Step], to: Positions) -> None:
        pieces = self._count_in_pieces(steps)
        try:
            for _ in pieces:
                await self._turns.breathe()
        finally:  # who is cut off counts to the end all the same, so that counts and cursor agree
            for _ in pieces:
                pass
            self._set_counted(to)

    def _count_in_pieces(self, steps: Sequence[Step]) -> Iterator[None]:
        now = self._clock.now_ms()
        for step in steps:
            if step.event.kind != WATERMARK:
                for tally in list(self._matcher.matches(step.event)):
                    yield from tally.add(step.event, now)
            yield

    async def _mark_gap(self) -> None:
        for tally in list(self._matcher.targets()):
            for counter in list(tally.counters):
                counter.mark_gap()
                await self._turns.breathe()

    def _set_counted(self, positions: Positions) -> None:
        if positions != self._counted:
            self._counted, self._cursor = positions, None

    # Bringing leases to the live end

    async def _sweep_new(self) -> None:
        while True:
            await self._has_new.wait()
            self._has_new.clear()
            new, self._new = self._new, []
            located = [await self._locate(counter) for counter in new]
            near = [found for found in located if found is not None]
            if near:
                await self._sweep(near)

    async def _sweep_far(self) -> None:
        while True:
            await self._has_far.wait()
            self._has_far.clear()
            far, self._far = self._far, []
            await self._sweep(far)

    async def _locate(self, counter: Counter) -> tuple[Counter, Positions] | None:
        """The position of a lease, if its records are in memory; the others wait for a sweep."""
        await self._turns.breathe()
        assert self._plan is not None
        cursor = self._cursors.get(counter)
        if cursor is None:
            return None
        try:
            start = await self._hub.start(self._plan, Request(self._plan.subscription, cursor))
        except CursorError as error:
            self._cursors.pop(counter, None)
            counter.fail(str(error))
            return None
        if any(gap.event.fields["reason"] in LOSSES for gap in start.gaps):
            counter.mark_gap()
        if self._is_in_memory(start.positions):
            return counter, start.positions
        self._far.append((counter, start.positions))
        self._has_far.set()
        return None

    def _is_in_memory(self, positions: Positions) -> bool:
        """Are all records from there on still in memory?"""
        followed = [self._hub.streams.by_name.get(name) for name in self.streams]
        return all(
            entry is not None
            and all(tail.has(position) for tail, position in zip(entry.tails, row, strict=True))
            for entry, row in zip(followed, positions, strict=True)
        )

    async def _sweep(self, located: Iterable[tuple[Counter, Positions]]) -> None:
        assert self._plan is not None
        sweep = Sweep(
            [
                (i, p)
                for i, source in enumerate(self._plan.sources)
                for p in range(source.partitions)
            ],
            self._hub.catalogue.named,
        )
        for counter, positions in located:
            if counter in self._cursors:
                self._add_to(sweep, counter, positions)
            await self._turns.breathe()
        if not len(sweep):
            return
        news = asyncio.Event()
        reader = self._hub.subscribe(self._plan, _Steps(), sweep.start(), news.set)
        report_at = self._clock.monotonic_s() + REPORT_S
        try:
            while len(sweep) and not await self._hand_over_all(sweep, reader):
                news.clear()
                if not await self._read_on(sweep, reader):
                    await self._wait(news, PACE_S)
                if self._clock.monotonic_s() >= report_at:
                    await self._report(sweep)
                    report_at = self._clock.monotonic_s() + REPORT_S
        finally:
            reader.close()

    def _add_to(self, sweep: Sweep, counter: Counter, positions: Positions) -> None:
        try:
            sweep.add(counter, positions)
        except FilterError as error:
            del self._cursors[counter]
            counter.fail(str(error))

    async def _read_on(self, sweep: Sweep, reader: Subscriber[Sequence[Step]]) -> bool:
        """Read one step on; False where nothing is at hand."""
        item = _next(reader)
        if isinstance(item, Lost):
            await self._hub.gap(reader, item, OnGap.EARLIEST)
            for counter in sweep.counters():
                counter.mark_gap()
                await self._turns.breathe()
        elif item is not None:
            now = self._clock.now_ms()
            for step in item.content or ():
                for _ in sweep.pass_event(
                    step.event, (step.stream, step.partition), step.position, now=now
                ):
                    await self._turns.breathe()
                await self._turns.breathe()
        return item is not None

    async def _hand_over_all(self, sweep: Sweep, reader: Subscriber[Sequence[Step]]) -> bool:
        """If the sweep stands where the live end is counted up to, its leases count on there."""
        if reader.view.key(reader.positions) != reader.view.key(self._counted):
            return False
        async with self._counting:
            if reader.view.key(reader.positions) != reader.view.key(self._counted):
                return False
            counters = list(sweep.counters())
            for counter in counters:
                self._hand_over(sweep, counter)
                await self._turns.breathe()
        if len(counters) >= MANY:
            gc.freeze()
        return True

    async def _report(self, sweep: Sweep) -> None:
        """Report the counts so far to leases that are far behind.

        Those that have enough leave the sweep.
        """
        for counter in sweep.progress():
            if counter.count >= COUNT_MAX:
                self._hand_over(sweep, counter)
            elif counter.count:
                counter.on_change(counter.lease_id)
            await self._turns.breathe()
        for counter in sweep.counters():
            if counter not in self._cursors:
                sweep.leave(counter)
            await self._turns.breathe()

    def _hand_over(self, sweep: Sweep, counter: Counter) -> None:
        sweep.leave(counter)
        if self._cursors.pop(counter, None) is None:
            return  # removed meanwhile
        tally = self._matcher.get(counter.where)
        if tally is None:
            tally = Tally(counter.where)
            self._matcher.add(counter.where, tally)
        counter.attach(tally)
        counter.on_change(counter.lease_id)


def _next(subscriber: Subscriber[Sequence[Step]]) -> Chunk[Sequence[Step]] | Lost | None:
    try:
        return subscriber.next()
    except ViewEnded as error:
        raise Unavailable(str(error)) from error
