"""The event log: hybrid message logging on the device.

What came in (receiver's log) and what must go out (sender's log) are one SQLite store, written by
one thread, many readings in one durable transaction. So a device pays one fsync for all that
arrived meanwhile, and none for sending.

    with EventLog(directory, config, …) as events:
        speed = events.stream("vehicle_position")
        ticket = speed.append((t, {"speed_kmh": 51.2}))      # any thread, cheap; raises
                                                             LogBusyError at the bound
        await speed.accepted(ticket)                         # durable now

Guarantees: what is accepted is in the log or acknowledged by the cloud, or counted in a gap; frames
of a stream are numbered from 1 without holes per epoch; a frame has the same bytes at every
attempt. Not here: who sends (uplink), what a reading may be (intake).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from edgewake.edge.log.config import FrameBounds, LogConfig
from edgewake.edge.log.consumer import Consumer
from edgewake.edge.log.damage.salvage import (
    LOG_ERRORS,
    is_damage,
    set_aside,
    set_foreign_aside,
)
from edgewake.edge.log.directory import check_text, end_durable_log, own_directory
from edgewake.edge.log.keeping.frames import UNSET_CLOCK
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import (
    Commit,
    Failpoint,
    FrameKey,
    Limits,
    OutFrame,
    no_failpoint,
)
from edgewake.edge.log.mode import NOT_LOGGED
from edgewake.edge.log.state import LogBusyError, LogClosedError, LogState
from edgewake.edge.log.status import LogStatus
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.bundle import last_of
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import CORRUPT, ConsumerState, Received
from edgewake.edge.log.tables.epoch import next_epoch
from edgewake.edge.log.tables.schema import LOG_NAME
from edgewake.edge.log.writing.writer import LogWriter
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.topics import stream_and_thing

log = logging.getLogger("edgewake.log")

T = TypeVar("T")

__all__ = [
    "Commit",
    "EventLog",
    "FrameKey",
    "LogBusyError",
    "LogClosedError",
    "OutFrame",
    "StreamLog",
]


class StreamLog:
    """The entry of one stream's readings into the log."""

    def __init__(self, events: EventLog, writer: LogWriter, name: str) -> None:
        self._events = events
        self._writer = writer
        self._name = name
        self._queue = writer.queue(name)
        self._places: dict[str, str] = {}
        """Positions that were queued without a reading, until their source's next one: no ticket
        says when they are durable."""
        self.append: Callable[[Reading], int] = partial(writer.append, self._queue)
        """Queue a checked reading and return its ticket. Raises LogBusyError, LogClosedError."""

    def append_all(
        self,
        readings: Iterable[Reading],
        *,
        position: tuple[str, str] | None = None,
        lost: Mapping[str, int] | None = None,
        promised: bool = False,
    ) -> int:
        """Queue readings with the source position after them and the losses before it.

        They are committed in one transaction.

        `promised`: their sender will hear that they are kept, so no quota takes them before they
        are durable. Raises as `append`, and LogBusyError, too, where the lane is full and loses
        what comes.
        """
        check_text(*(position or ()))
        before = self._queue.appended
        ticket = self._writer.append_all(
            self._queue, readings, position=position, lost=lost, promised=promised
        )
        if position is not None:
            self._places.pop(position[0], None)
            if ticket == before:
                self._places[position[0]] = position[1]
        return ticket

    def bound(self, bytes_max: int) -> None:
        """Limit its readings that are not durable yet to `bytes_max` from now on."""
        self._queue.bytes_max = bytes_max

    async def kept(self) -> None:
        """Where the mode is synchronous: wait until what was left here is durable.

        Raises LogClosedError.
        """
        if self._events.config.mode.flags.is_synchronous:
            await self.accepted(self._queue.appended)

    async def durable(self) -> None:
        """Wait until what was queued so far is durable, positions too. Raises LogClosedError."""
        places = tuple(self._places.items())
        await self.accepted(self._queue.appended)
        await self._events.until(
            lambda: all(
                self._events.position(source) == at or self._places.get(source) != at
                for source, at in places
            )
        )

    def lose(self, count: int, reason: str) -> None:
        """Note readings of this stream that were dropped before the log. Raises LogClosedError.

        A gap tells the cloud how many and why.
        """
        self._writer.lose(self._queue, count, reason)

    @property
    def accepted_through(self) -> int:
        """The highest ticket that is durable."""
        return self._queue.accepted

    @property
    def waiting(self) -> int:
        """Queued readings that are not durable yet."""
        return self._queue.appended - self._queue.accepted

    async def accepted(self, ticket: int) -> None:
        """Wait until a ticket is durable. Raises LogClosedError."""
        await self._events.until(lambda: self._queue.accepted >= ticket)

    async def room(self, *, promised: bool = False) -> None:
        """Wait until the queue has room, for what is `promised` in its lane, too.

        Raises LogClosedError.
        """
        has_room = self._writer.may_promise if promised else self._writer.has_room_for
        await self._events.until(lambda: has_room(self._name))

    def wait_accepted(self, ticket: int, *, timeout_s: float) -> bool:
        """`accepted` for threads that are not asyncio's; False after the time."""
        return self._writer.wait_accepted(self._queue, ticket, timeout_s)

    def wait_for_room(self, *, timeout_s: float) -> bool:
        """`room` for such threads."""
        return self._writer.wait_for_room(self._queue, timeout_s)


class EventLog:
    """The open log.

    Frames come to `on_frames`, in the loop it was opened in; without a loop, in the writer's
    thread.
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        uplink: FrameBounds,
        *,
        clock: Clock,
        rng: random.Random,
        on_frames: Callable[[Sequence[OutFrame]], None] = lambda _frames: None,
        on_failure: Callable[[BaseException], None] = lambda _error: None,
        boot_id: str = "",
        failpoint: Failpoint = no_failpoint,
        lanes: Mapping[str, Lane] | None = None,
        local: frozenset[str] = frozenset(),
    ) -> None:
        """Open or create the log in `directory`; the streams in `local` are not sent.

        `boot_id` names this start of the machine: another one begins a new epoch.

        A damaged log is set aside and a new one begun. Raises LocalError where another process has
        the directory, sqlite3.Error, OSError.
        """
        self.config = config
        self._lanes = dict(lanes or {})
        self._on_frames = on_frames
        self._on_failure = on_failure
        self._loop = _running_loop()
        self._changed: set[asyncio.Future[None]] = set()
        self._consumers: dict[str, Consumer] = {}
        self._latest: dict[str, Reading] = {}
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._owner = own_directory(directory)
        _say_foreign(directory)
        open_store = partial(
            LogStore,
            directory,
            _limits(config, uplink, self._lanes, local),
            clock,
            boot=boot_id,
            new_epoch=lambda previous, now_ms: next_epoch(previous, now_ms=now_ms, rng=rng),
            failpoint=failpoint,
            is_durable=config.mode.flags.is_durable,
        )
        try:
            if not config.mode.flags.is_durable:
                end_durable_log(directory)
            self._writer = LogWriter(
                partial(_opened, directory, open_store),
                directory,
                config,
                clock,
                self.lane,
                readings_max=uplink.frame_readings_max,
                on_done=self._done,
                on_failure=self._failed,
                on_received=self._received,
                on_renewed=self._renewed,
                failpoint=failpoint,
            )
        except BaseException:
            os.close(self._owner)
            raise
        self.epoch_began = self._writer.store.epoch_began
        self.status_at_open = self._status_at_open()
        """The log's status before anything was added."""
        self._writer.start()

    def lane(self, stream: str) -> Lane:
        """A stream's lane; of a thing's it is that of all things'."""
        return self._lanes.get(stream_and_thing(stream)[0], Lane.NORMAL)

    def streams(self) -> frozenset[str]:
        """Names of all that the log has or had readings of. Never blocks."""
        return self._writer.store.stream_names

    async def room(self, *streams: str, promised: bool = False) -> None:
        """Wait until the queues of these streams have room. Raises LogClosedError.

        Their lanes must also have room for what is `promised`.
        """
        if promised:
            await self.until(lambda: all(map(self._writer.may_promise, streams)))
        else:
            await self.until(lambda: self._writer.has_room_for(*streams))

    def stream(self, name: str, *, bytes_max: int | None = None) -> StreamLog:
        """The entry of a stream into the log.

        At most `bytes_max` bytes of its readings are queued, where that is less than its usual
        bound.
        """
        stream = StreamLog(self, self._writer, name)
        if bytes_max is not None:
            stream.bound(bytes_max)
        return stream

    def append(self, commit: Commit) -> Future[None]:
        """Queue readings of several streams and positions that must become durable together.

        The future is done when they are.

        Raises LogBusyError where one of the queues has no room, LogClosedError.
        """
        check_text(*commit.positions.keys(), *commit.positions.values())
        return self._writer.commit(commit)

    async def consumer(
        self, name: str, streams: Sequence[str], *, at_end: bool = False
    ) -> Consumer:
        """A consumer of these streams, durable from now on; it continues from its last commit.

        See `edgewake.edge.log.consumer`.

        A stream that is new to it begins with the oldest reading that is still there, or (`at_end`)
        with the next one to come. Raises LogClosedError, sqlite3.Error.
        """
        check_text(name)
        return self._consumer(
            await asyncio.wrap_future(self._writer.ask(_registration(name, streams, at_end)))
        )

    def open_consumer(self, name: str, streams: Sequence[str], *, at_end: bool = False) -> Consumer:
        """`consumer` for threads: blocks."""
        check_text(name)
        return self._consumer(self._ask(_registration(name, streams, at_end)))

    def _consumer(self, found: ConsumerState) -> Consumer:
        consumer = self._consumers[found.name] = Consumer(self, self._writer, found)
        return consumer

    async def forget_consumer(self, name: str) -> None:
        """Remove a consumer: nothing is kept for it any more.

        Raises LogClosedError, sqlite3.Error.
        """
        self._consumers.pop(name, None)
        await asyncio.wrap_future(self._writer.ask(lambda store: store.forget(name)))

    def consumers(self) -> frozenset[str]:
        """Names of all that the log knows, also of those that nobody opened."""
        return frozenset(self._writer.store.consumers)

    def latest(self) -> dict[str, Reading]:
        """The last reading of each stream since the start, even if the log dropped it.

        Never blocks.
        """
        return dict(self._latest)

    def position(self, source: str) -> str | None:
        """The position of a source when its last readings were accepted. Never blocks."""
        return self._writer.store.position(source)

    def start_sending(self, frame_bytes: int | None = None) -> None:
        """Start forming frames of at most `frame_bytes`, and passing them to `on_frames`.

        There are as many as the window holds.
        """
        if frame_bytes is not None:
            self.set_frame_bytes(frame_bytes)
        self._writer.set_sending(True)

    def set_frame_bytes(self, frame_bytes: int) -> None:
        """Set the size of the next frames before compression.

        A larger single reading goes alone.
        """
        self._writer.set_frame_bytes(frame_bytes)

    def stop_sending(self) -> None:
        """Form no frames while nobody sends: readings wait, so that later frames are fuller."""
        self._writer.set_sending(False)

    def pause(self, streams: frozenset[str], lanes: frozenset[Lane] = frozenset()) -> None:
        """Pause these streams and lanes, and no others.

        Their readings wait unframed, and the others have the window.
        """
        self._writer.set_paused(streams, lanes)

    def hurry(self) -> None:
        """Form frames immediately, however small: the agent is stopping."""
        self._writer.hurry()

    def free(self, key: FrameKey, rejected: RejectReason | None = None) -> None:
        """Free a frame that the cloud has, or has refused for good."""
        self._writer.free(key, rejected)

    def status(self) -> LogStatus:
        """Ask the log how it is.

        Blocks until the writer answers: for tools and tests, never in an event loop.
        """
        return self._ask(self._status)

    async def ask_status(self) -> LogStatus:
        """`status` without blocking the loop."""
        answer: LogStatus = await asyncio.wrap_future(self._writer.ask(self._status))
        return answer

    def _status_at_open(self) -> LogStatus:
        try:
            return self._status(self._writer.store)
        except (
            LOG_ERRORS
        ) as error:  # the writer mends it, or says that it cannot, as soon as it is asked
            log.error("the event log cannot be read: %s", error, extra={"event": "log.unreadable"})
            return LogStatus(self._writer.state, self.epoch, 0, 0, None, {})

    def _status(self, store: LogStore) -> LogStatus:
        lost = Counter(
            {
                name.removeprefix("lost_"): value
                for name, value in store.counters.items()
                if name.startswith("lost_")
            }
        )
        lost.update(self._writer.unsaid_losses())
        backlog, _ = store.backlog()
        unset = store.counters.get(UNSET_CLOCK, 0)
        return LogStatus(
            self._writer.state,
            store.epoch,
            backlog,
            store.stored_bytes,
            store.oldest_at(),
            dict(lost),
            unset,
            store.given_up(),
        )

    @property
    def state(self) -> LogState:
        """The state of the log: good, or what is wrong."""
        return self._writer.state

    @property
    def all_framed(self) -> bool:
        """Has everything been committed and framed?"""
        return self._writer.settled

    @property
    def epoch(self) -> int:
        """The epoch that readings accepted now belong to."""
        return self._writer.store.epoch

    def close(self) -> None:
        """Write what is queued, close, and release the directory. Safe to call twice."""
        self._writer.close()
        self._wake()
        if self._owner >= 0:
            os.close(self._owner)
            self._owner = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that commits change. Raises LogClosedError."""
        loop = asyncio.get_running_loop()
        while True:
            changed = loop.create_future()
            self._changed.add(changed)
            try:
                if condition():
                    return
                if self._writer.state is LogState.CLOSED:
                    raise LogClosedError
                await changed
            finally:
                self._changed.discard(changed)

    def _ask(self, question: Callable[[LogStore], T]) -> T:
        answer: T = self._writer.ask(question).result()
        return answer

    def _received(self, part: Received) -> None:
        self._latest[part.stream] = last_of(part.readings)
        # Each of them is to have it.
        if [consumer for consumer in tuple(self._consumers.values()) if consumer.offer(part)]:
            self._in_loop(self._wake)

    def _renewed(self) -> None:
        for consumer in tuple(self._consumers.values()):
            consumer.renew()
        self._in_loop(self._wake)

    def _done(self, frames: Sequence[OutFrame]) -> None:
        self._in_loop(lambda: self._tell(frames))

    def _tell(self, frames: Sequence[OutFrame]) -> None:
        self._wake()
        if frames:
            self._on_frames(frames)

    def _failed(self, error: BaseException) -> None:
        self._in_loop(lambda: self._on_failure(error))

    def _wake(self) -> None:
        for changed in tuple(self._changed):
            if not changed.done():
                changed.set_result(None)

    def _in_loop(self, function: Callable[[], None]) -> None:
        if self._loop is None:
            function()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)


def _registration(
    name: str, streams: Sequence[str], at_end: bool
) -> Callable[[LogStore], ConsumerState]:
    return lambda store: store.register(name, streams, at_end=at_end)


def _say_foreign(directory: Path) -> None:
    """Sets another program's file aside and logs it."""
    foreign = set_foreign_aside(directory)
    if foreign is not None:
        log.error(
            "%s was not an event log; it was renamed to %s",
            directory / LOG_NAME,
            foreign.name,
            extra={"event": "log.foreign"},
        )


def _limits(
    config: LogConfig, uplink: FrameBounds, lanes: Mapping[str, Lane], local: frozenset[str]
) -> Limits:
    flags = config.mode.flags
    return Limits(
        quota_bytes=_quota_bytes(config),
        consumer_bytes=config.consumer_bytes,
        copies_sent=flags.copies_sent,
        missing=CORRUPT if flags.is_durable else NOT_LOGGED,
        readings_max=uplink.frame_readings_max,
        bytes_max=uplink.frame_bytes_max,
        window_frames=uplink.inflight_frames_max,
        window_bytes=uplink.inflight_bytes_max,
        lanes=lanes,
        local=local,
        lane_quotas=config.lane_quotas(),
        clock_wait_s=config.clock_wait_s,
    )


def _opened(
    directory: Path, open_store: Callable[[], LogStore], error: BaseException | None
) -> LogStore:
    """The store, opened again after `error`; where it is damaged, a new one in its place."""
    if error is not None and is_damage(error):
        set_aside(directory)
    try:
        return open_store()
    except LOG_ERRORS as damage:
        if not is_damage(damage):
            raise
        log.error(
            "the event log is damaged and set aside: %s", damage, extra={"event": "log.damaged"}
        )
        set_aside(directory)
        return open_store()


def _quota_bytes(config: LogConfig) -> int:
    if not config.mode.flags.is_durable:
        return min(config.quota_bytes, config.queue_bytes_max)  # it is memory
    return config.quota_bytes


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
