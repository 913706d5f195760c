"""The one thread that owns the event log's write connection.

Everybody else leaves work here and is told when it is durable.

    append ─▶ bounded queue per stream ─┐
    free   ─▶ bounded by the window  ───┼─▶ one transaction ──────▶ accepted, frames to send
    sending on/off ─────────────────────┘   (group commit, fsync)

One turn takes all that waits, so the slower the disk, the more readings share an fsync. When a turn
is due stands in `waiting`, what a disk that fails changes in `disk`. Durable first: a reading is
accepted when its COMMIT returned, a frame may be sent when its bytes are committed. Work that the
disk does not take is kept and tried again; queues that fill up refuse meanwhile.

`close` refuses new work, writes what waits, then closes. Use after close raises LogClosedError. An
error nobody foresaw ends the thread and is given to `on_failure`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.damage.salvage import LOG_ERRORS
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import Commit, FrameKey, OutFrame, Work, settle
from edgewake.edge.log.state import LogBusyError, LogClosedError, LogState
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import ConsumerState, Received
from edgewake.edge.log.writing.disk import RETRY_S, LogDisk, Question
from edgewake.edge.log.writing.queue import Queue, size_of
from edgewake.edge.log.writing.waiting import FREE_LINGER_S, Waiting
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RejectReason

log = logging.getLogger("edgewake.log")


class LogWriter:
    """Owns the store.

    `opener` opens it, again after an error, which it gets; `on_done` is called by the thread after
    each commit.
    """

    def __init__(
        self,
        opener: Callable[[BaseException | None], LogStore],
        directory: Path,
        config: LogConfig,
        clock: Clock,
        lane: Callable[[str], Lane],
        *,
        readings_max: int,
        on_done: Callable[[Sequence[OutFrame]], None],
        on_failure: Callable[[BaseException], None],
        on_received: Callable[[Received], None] = lambda _: None,
        on_renewed: Callable[[], None] = lambda: None,
        failpoint: Callable[[str], None],
    ) -> None:
        self._is_synchronous = config.mode.flags.is_synchronous
        self._clock = clock
        self._lane = lane
        self._on_done = on_done
        self._on_failure = on_failure
        self._on_received = on_received
        self._failpoint = failpoint
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._waiting = Waiting(config, lane, readings_max=readings_max)
        self._queues = self._waiting.queues
        self._enough = config.commit_readings_max
        self._calls: list[tuple[Question, Future[Any]]] = []
        self._idle = False
        self._held: Work | None = None
        """What was taken and is not durable yet."""
        self._answers_of_work: list[Future[None]] = []
        self._over = threading.Event()
        self._disk = LogDisk(opener, directory, config, stopping=self._over, on_renewed=on_renewed)
        self._waiting.say_full(self.store)
        self._thread = threading.Thread(target=self._run, name="event-log", daemon=True)

    def start(self) -> None:
        """Begin to work; until then the store belongs to who made it."""
        self._thread.start()

    @property
    def store(self) -> LogStore:
        """The store: another one after an error."""
        return self._disk.store

    @property
    def state(self) -> LogState:
        """The state of the log."""
        return self._disk.state

    # from any thread

    def queue(self, stream: str) -> Queue:
        """The queue of a stream, made at first use."""
        with self._lock:
            return self._queues.of(stream, self._lane(stream))

    def append(self, queue: Queue, reading: Reading) -> int:
        """Leave one checked reading; its ticket, accepted when `queue.accepted` reaches it.

        Raises LogBusyError, LogClosedError.
        """
        size = size_of(reading)
        with self._lock:
            if self._waiting.stopping:
                raise LogClosedError
            if not self._queues.has_room(queue):
                raise LogBusyError
            pending = queue.pending
            pending.append(reading)
            queue.appended += 1
            queue.size += size
            self._queues.size += size
            if self._idle or queue.before_count + len(pending) in (1, self._enough):
                self._wake.notify_all()
            return queue.appended

    def append_all(
        self,
        queue: Queue,
        readings: Iterable[Reading],
        *,
        position: tuple[str, str] | None = None,
        lost: Mapping[str, int] | None = None,
        promised: bool = False,
    ) -> int:
        """Queue readings, their source's position after them, and losses before it by reason.

        One transaction takes all or none.

        `promised`: no quota takes them before they are durable; LogBusyError where the lane would
        lose them.
        """
        check = self._waiting.check_promise if promised else self._waiting.check_room
        with self._lock:
            check(queue)
            was_empty = not queue.count
            self._waiting.add(queue, readings, position, lost or {})
            if self._idle or was_empty or queue.count >= self._enough:
                self._wake.notify_all()
            return queue.appended

    def commit(self, commit: Commit) -> Future[None]:
        """Leave what has to become durable together; the answer comes when it is.

        Raises LogBusyError, LogClosedError.
        """
        with self._lock:
            answer = self._waiting.commit(commit, self._clock.monotonic_s())
            self._wake.notify_all()
        return answer

    def has_room_for(self, *streams: str) -> bool:
        """May more be appended to all of these?"""
        return all(self._queues.has_room(self.queue(stream)) for stream in streams)

    def may_promise(self, stream: str) -> bool:
        """May a sender of this stream hear that what it brings is kept?"""
        return self._queues.may_promise(self.queue(stream))

    def lose(self, queue: Queue, count: int, reason: str) -> None:
        """Readings of the stream were dropped: a gap says so, with those of a short while.

        Raises LogClosedError.
        """
        with self._lock:
            self._waiting.lose(queue, count, reason, self._clock.monotonic_s())

    def unsaid_losses(self) -> dict[str, int]:
        """What `lose` was told and no gap says yet, by reason."""
        with self._lock:
            return self._queues.losses()

    def free(self, key: FrameKey, rejected: RejectReason | None) -> None:
        """The cloud acknowledged or refused a frame. At most a window of frames can wait here."""
        with self._lock:
            self._waiting.free(key, rejected, self._clock.monotonic_s())
            # Else it is deleted with the next commit, or soon: nothing waits for it.
            if self._waiting.wants_room(self.store):
                self._wake.notify_all()

    def set_sending(self, sending: bool) -> None:
        """Allow or forbid frames to be formed."""
        with self._lock:
            self._waiting.sending = sending
            self._wake.notify_all()

    def set_frame_bytes(self, frame_bytes: int) -> None:
        """Bound of the next frames."""
        self._waiting.frame_bytes = frame_bytes

    def set_paused(self, streams: frozenset[str], lanes: frozenset[Lane]) -> None:
        """Form no more frames of these streams and lanes, and leave the window to the others."""
        with self._lock:
            self._waiting.framing.paused, self._waiting.framing.closed = streams, lanes
            self._wake.notify_all()

    def hurry(self) -> None:
        """Let frames wait no longer for more readings: the agent stops."""
        with self._lock:
            self._waiting.framing.hurries = True
            self._wake.notify_all()

    def ask(self, question: Question) -> Future[Any]:
        """Let the writer's thread answer a short question between two turns.

        Raises LogClosedError.
        """
        answer: Future[Any] = Future()
        with self._lock:
            if self._waiting.stopping:
                raise LogClosedError
            self._calls.append((question, answer))
            self._wake.notify_all()
        return answer

    def consumer(self, name: str) -> ConsumerState | None:
        """A consumer as it will be when all its commits are durable.

        None for an unknown name. What was queued here is done in any case, also in a log that had
        to be replaced.
        """
        with self._lock:
            found = self.store.consumer(name)
            for passed in (
                self._held.passed.get(name) if self._held is not None else None,
                self._waiting.passed(name),
            ):
                if found is not None and passed is not None:
                    found = found.moved(passed, found.commit)
            return found

    def wait_for_room(self, queue: Queue, timeout_s: float) -> bool:
        """Block until the queue has room; for threads that are not asyncio's."""
        with self._lock:
            return self._wake.wait_for(
                lambda: self._waiting.stopping or self._queues.has_room(queue), timeout_s
            )

    def wait_accepted(self, queue: Queue, ticket: int, timeout_s: float) -> bool:
        """Block until a ticket is accepted."""
        with self._lock:
            return (
                self._wake.wait_for(
                    lambda: queue.accepted >= ticket or self.state is LogState.CLOSED, timeout_s
                )
                and queue.accepted >= ticket
            )

    @property
    def settled(self) -> bool:
        """Is nothing left that waits for its commit or its frame?"""
        with self._lock:
            return self._queues.all_durable and not self.store.has_unframed()

    def close(self) -> None:
        """Write what waits, then close. Safe to call twice."""
        with self._lock:
            self._waiting.stopping = self._waiting.framing.hurries = True
            self._wake.notify_all()
        self._over.set()
        self._thread.join()

    # the thread

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:
            log.exception("the event log's writer died", extra={"event": "log.died"})
            self._on_failure(error)
        finally:
            self._finish()

    def _finish(self) -> None:
        self._disk.close()
        with self._lock:
            self._waiting.stopping = True
            self._disk.state = LogState.CLOSED
            calls, self._calls = self._calls, []
            waiting = [
                *(answer for _, answer in calls),
                *self._answers_of_work,
                *self._waiting.answers,
            ]
            self._waiting.answers = []
            self._wake.notify_all()
        settle(waiting, LogClosedError())

    def _turn(self) -> bool:
        """Wait for work and do it; False when all is done and the log is to close."""
        with self._lock:
            self._wait()
            calls, self._calls = self._calls, []
            is_new = self._held is None
            work = self._next_work()
            over = self._waiting.stopping and work is None
        for question, answer in calls:
            self._answer(question, answer)
        if self._disk.carry_over(self._clock.monotonic_s()):
            self._on_done(())  # consumers wait for it
        if work is None:
            self._disk.upkeep()
            return not over
        self._failpoint("received")
        parts = [
            Received(name, self.store.last(name) + 1, readings)
            for name, readings in work.readings.items()
        ]
        if is_new and not self._is_synchronous:
            self._hand_out(parts)
        if self.state is LogState.FULL and not self._make_room():
            return self._keep_for_later(work)
        return self._do(work, parts)

    def _do(self, work: Work, parts: Sequence[Received]) -> bool:
        done = self._disk.apply(work)
        if done is None:
            return self._keep_for_later(
                self._deletions_first(work) if self.state is LogState.FULL else work
            )
        self._accepted(work)
        self._failpoint("accepted")
        if self._is_synchronous:
            self._hand_out(parts)
        answers, self._answers_of_work = self._answers_of_work, []
        settle(answers)
        self._on_done(done.frames)
        if done.dropped:
            log.warning(
                "the quota cost %d readings",
                done.dropped,
                extra={"event": "log.quota", "readings": done.dropped},
            )
        self._disk.keep_short()
        return True

    def _hand_out(self, parts: Sequence[Received]) -> None:
        for part in parts:
            self._on_received(part)

    def _answer(self, question: Question, answer: Future[Any]) -> None:
        if not answer.set_running_or_notify_cancel():
            return  # whoever asked has gone
        try:
            answer.set_result(self._disk.answer(question))
        except LOG_ERRORS as error:
            answer.set_exception(error)

    def _wait(self) -> None:
        """Until something is to be done, or for a while; linger a little for company.

        Holds the lock.
        """
        waiting = self._waiting
        if waiting.stopping:
            return
        if self._held is not None or self._disk.is_held_by_reader():
            self._wake.wait(RETRY_S)
            return
        self._idle = True
        until_s = self._clock.monotonic_s() + FREE_LINGER_S
        while (now_s := self._clock.monotonic_s()) < until_s:
            sleep_s = waiting.sleep_s(self.store, now_s, until_s)
            if (
                self._wake.wait_for(self._is_due, timeout=min(FREE_LINGER_S, sleep_s))
                or sleep_s >= FREE_LINGER_S
            ):
                break
        self._idle = False
        if (
            waiting.intake_is_due(self.store, self._clock.monotonic_s())
            and not self._is_synchronous
        ):
            self._linger()

    def _is_due(self) -> bool:
        now_s = self._clock.monotonic_s()
        return (
            bool(self._calls)
            or self._waiting.is_due(self.store, now_s)
            or self._disk.salvage_is_due(now_s)
        )

    def _linger(self) -> None:
        """Give more readings time to come, by lane. Holds the lock."""
        waiting_since: dict[Lane, float] = {}
        self._waiting.framing.first_came_s = self._clock.monotonic_s()
        while (
            wait_s := self._waiting.linger_s(self.store, waiting_since, self._clock.monotonic_s())
        ) > 0:
            if not self._wake.wait(wait_s):
                return

    def _next_work(self) -> Work | None:
        """What this turn does; None where there is nothing, or it may not. Holds the lock."""
        if self._held is not None:
            return self._held
        if self._disk.is_held_by_reader() and not self._waiting.stopping:
            return None
        self._held, self._answers_of_work = self._waiting.take(
            self.store, self._clock.monotonic_s()
        )
        return self._held

    def _accepted(self, work: Work) -> None:
        with self._lock:
            self._held = None
            self._waiting.accepted(work, self.store, self._clock.monotonic_s())
            self._disk.say(LogState.GOOD)
            self._wake.notify_all()

    def _make_room(self) -> bool:
        """On a full disk: delete what the cloud has, send on. May new readings be written again?"""
        with self._lock:
            work = self._waiting.take_freed(self.store, self._clock.monotonic_s())
        done = self._disk.make_room(work)
        if done is not None:
            self._on_done(done.frames)
        elif work is not None:
            self._deletions_first(work)
        return self._disk.has_reserve()

    def _deletions_first(self, work: Work) -> Work:
        """The disk did not take it: the work without its deletions, which go alone next time."""
        with self._lock:
            self._waiting.put_back(work.freed)
        return replace(work, freed=())

    def _keep_for_later(self, work: Work) -> bool:
        """The next turn tries again; when stopping, this was never accepted and is let go."""
        with self._lock:
            self._held = work
            if self._waiting.stopping:
                lost = sum(map(len, work.readings.values()))
                log.error(
                    "stopped with %d readings that could not be stored",
                    lost,
                    extra={"event": "log.not_stored", "readings": lost},
                )
            return not self._waiting.stopping
