"""The one thread that owns the event log's write connection. Everybody else leaves work here and is told when it is durable.

    append ─▶ bounded queue per stream ─┐
    free   ─▶ bounded by the window  ───┼─▶ one transaction (group commit, fsync) ─▶ accepted, frames to send
    sending on/off ─────────────────────┘

One turn takes all that waits, so the slower the disk, the more readings share an fsync. What a turn does:

* durable first: a reading is accepted when its COMMIT returned, a frame may be sent when its bytes are committed;
* disk full: the turn is kept and tried again, queues that fill up refuse, and nothing is acknowledged that is not stored. Meanwhile
  sending and deleting go on in the space of the reserve file;
* an I/O error: that connection is never used again. The log is opened anew, checkpointed (which writes and syncs every page once more), and
  only its commit number decides whether the turn is done again;
* damage: the files are set aside, a new log and epoch begin at once, and each turn carries over a part of what can still be read.

`close` refuses new work, writes what waits, then closes. Use after close raises LogClosedError. An error nobody foresaw ends the thread
and is given to `on_failure`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from edgewake.edge.config import LogConfig
from edgewake.edge.log.batching import Batching
from edgewake.edge.log.codec import Reading
from edgewake.edge.log.consumers import Passed, Received
from edgewake.edge.log.filling import Filling
from edgewake.edge.log.framing import Framing
from edgewake.edge.log.queue import Queue, Queues, size_of
from edgewake.edge.log.reserve import Reserve
from edgewake.edge.log.salvage import LOG_ERRORS, is_damage, is_full
from edgewake.edge.log.schema import CHECKPOINT_BYTES
from edgewake.edge.log.state import LogBusyError, LogClosedError, LogState
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.work import Commit, Done, FrameKey, OutFrame, Work, settle
from edgewake.edge.uplink.lanes import Lane
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import RejectReason

log = logging.getLogger("edgewake.log")

RETRY_S: Final = 0.5
"""Wait before a full or broken disk is tried again: soon enough to accept within seconds after it was mended."""
FREE_LINGER_S: Final = 0.5
"""Acknowledged frames are deleted with the next commit, or after this time: an idle device does not pay an fsync for each."""
LOSS_LINGER_S: Final = 1.0
"""Losses are said in one gap per stream and reason for so long: a gap takes a frame of its own."""
DAMAGE_MAX: Final = 3
"""Damaged logs in a row without a commit between them. More is not a page that broke but a program or a disk: the agent stops."""


Question: TypeAlias = Callable[[LogStore], Any]


class LogWriter:
    """Owns the store. `opener` opens it, again after an error, which it gets; `on_done` is called by the thread after each commit."""

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
        self._opener = opener
        self._config = config
        self._flags = config.mode.flags
        self._clock = clock
        self._lane = lane
        self._batching = Batching(config.linger_s())
        frame_linger_s = self._batching.linger_s if self._flags.on_receipt else dict.fromkeys(Lane, 0.0)
        self._framing = Framing(Filling(frame_linger_s, readings_max=readings_max), lane)
        self._on_done = on_done
        self._on_failure = on_failure
        self._on_received = on_received
        self._on_renewed = on_renewed
        self._passed: dict[str, Passed] = {}
        self._passed_since = 0.0
        self._answers: list[Future[None]] = []
        self._answers_of_work: list[Future[None]] = []
        self._failpoint = failpoint
        self._reserve = Reserve(directory, config.reserve_bytes if self._flags.is_durable else 0)
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._queues = Queues(readings_max=config.queue_readings_max, bytes_max=config.queue_bytes_max)
        self._lost_since: float | None = None
        self._positions: dict[str, str] = {}
        self._freed: list[tuple[FrameKey, RejectReason | None]] = []
        self._freed_since = 0.0
        self._calls: list[tuple[Question, Future[Any]]] = []
        self._sending = False
        self._frame_bytes: int | None = None
        self._stopping = False
        self._idle = False
        self._held: Work | None = None
        self._checkpoint_from = CHECKPOINT_BYTES
        self._salvage_from_s = 0.0
        self._damages = 0
        self._over = threading.Event()
        self.state = LogState.GOOD
        self.store = opener(None)
        self._queues.stopped = self.store.stopped_lanes
        if not self._reserve.keep():
            log.warning("no space for a reserve of %d bytes", config.reserve_bytes, extra={"event": "log.no_reserve"})
        self._thread = threading.Thread(target=self._run, name="event-log", daemon=True)

    def start(self) -> None:
        """Begin to work; until then the store belongs to who made it."""
        self._thread.start()

    # from any thread

    def queue(self, stream: str) -> Queue:
        """The queue of a stream, made at first use."""
        with self._lock:
            return self._queues.of(stream, self._lane(stream))

    def append(self, queue: Queue, reading: Reading) -> int:
        """Leave one checked reading; its ticket, accepted when `queue.accepted` reaches it. Raises LogBusyError, LogClosedError."""
        size = size_of(reading)
        with self._lock:
            self._check_room(queue)
            pending = queue.pending
            pending.append(reading)
            queue.appended += 1
            queue.size += size
            self._queues.size += size
            if self._idle or len(pending) in (1, self._config.commit_readings_max):
                self._wake.notify_all()
            return queue.appended

    def append_all(self, queue: Queue, readings: Iterable[Reading], *, position: tuple[str, str] | None = None) -> int:
        """Leave readings and the place of their source that follows them: one transaction takes both or neither."""
        with self._lock:
            self._check_room(queue)
            was_empty = not queue.pending
            self._queues.add(queue, readings)
            if position is not None:
                self._positions[position[0]] = position[1]
            if self._idle or was_empty or len(queue.pending) >= self._config.commit_readings_max:
                self._wake.notify_all()
            return queue.appended

    def commit(self, commit: Commit) -> Future[None]:
        """Leave what has to become durable together; the answer comes when it is. Raises LogBusyError, LogClosedError."""
        answer: Future[None] = Future()
        with self._lock:
            queues = {stream: self._queues.of(stream, self._lane(stream)) for stream in commit.readings}
            if self._stopping:
                raise LogClosedError
            if not all(map(self._queues.has_room, queues.values())):
                raise LogBusyError
            for stream, readings in commit.readings.items():
                self._queues.add(queues[stream], readings)
            self._positions |= commit.positions
            if commit.consumer is not None and commit.passed is not None:
                if commit.is_awaited or not self._passed:
                    self._passed_since = float("-inf") if commit.is_awaited else self._clock.monotonic_s()
                before = self._passed.get(commit.consumer)
                self._passed[commit.consumer] = commit.passed if before is None else before.then(commit.passed)
            self._answers.append(answer)
            self._wake.notify_all()
        return answer

    def has_room_for(self, *streams: str) -> bool:
        """May more be appended to all of these?"""
        return all(self._queues.has_room(self.queue(stream)) for stream in streams)

    def _check_room(self, queue: Queue) -> None:
        if self._stopping:
            raise LogClosedError
        if not self._queues.has_room(queue):
            raise LogBusyError

    def lose(self, queue: Queue, count: int, reason: str) -> None:
        """Readings of the stream were dropped: a gap says so, with those of a short while. Raises LogClosedError."""
        with self._lock:
            if self._stopping:
                raise LogClosedError
            queue.lost[reason] = queue.lost.get(reason, 0) + count
            if self._lost_since is None:
                self._lost_since = self._clock.monotonic_s()

    def unsaid_losses(self) -> dict[str, int]:
        """What `lose` was told and no gap says yet, by reason."""
        with self._lock:
            return self._queues.losses()

    def free(self, key: FrameKey, rejected: RejectReason | None) -> None:
        """The cloud acknowledged or refused a frame. At most a window of frames can wait here."""
        with self._lock:
            if not self._freed:
                self._freed_since = self._clock.monotonic_s()
            self._freed.append((key, rejected))
            if self._idle or self.store.has_unframed(self._framing.held_back(self.store)):
                self._wake.notify_all()

    def set_sending(self, sending: bool) -> None:
        """May frames be formed?"""
        with self._lock:
            self._sending = sending
            self._wake.notify_all()

    def set_frame_bytes(self, frame_bytes: int) -> None:
        """Bound of the next frames."""
        self._frame_bytes = frame_bytes

    def set_paused(self, streams: frozenset[str], lanes: frozenset[Lane]) -> None:
        """Form no more frames of these streams and lanes, and leave the window to the others."""
        with self._lock:
            self._framing.paused, self._framing.closed = streams, lanes
            self._wake.notify_all()

    def hurry(self) -> None:
        """From now on no frame waits for company: the agent stops."""
        with self._lock:
            self._framing.hurries = True
            self._wake.notify_all()

    def ask(self, question: Question) -> Future[Any]:
        """Let the writer's thread answer a short question between two turns. Raises LogClosedError."""
        answer: Future[Any] = Future()
        with self._lock:
            if self._stopping:
                raise LogClosedError
            self._calls.append((question, answer))
            self._wake.notify_all()
        return answer

    def wait_for_room(self, queue: Queue, timeout_s: float) -> bool:
        """Block until the queue has room; for threads that are not asyncio's."""
        with self._lock:
            return self._wake.wait_for(lambda: self._stopping or self._queues.has_room(queue), timeout_s)

    def wait_accepted(self, queue: Queue, ticket: int, timeout_s: float) -> bool:
        """Block until a ticket is accepted."""
        with self._lock:
            return (
                self._wake.wait_for(lambda: queue.accepted >= ticket or self.state is LogState.CLOSED, timeout_s)
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
            self._stopping = self._framing.hurries = True
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
        try:
            self.store.close()
        except LOG_ERRORS as error:
            log.error("closing the event log: %s", error, extra={"event": "log.close_failed"})
        with self._lock:
            self._stopping = True
            self.state = LogState.CLOSED
            calls, self._calls = self._calls, []
            waiting, self._answers = [answer for _, answer in calls] + self._answers_of_work + self._answers, []
            self._wake.notify_all()
        settle(waiting, LogClosedError())

    def _turn(self) -> bool:
        """Wait for work and do it; False when all is done and the log is to close."""
        with self._lock:
            self._wait()
            calls, self._calls = self._calls, []
            is_new = self._held is None
            work = self._next_work()
            over = self._stopping and work is None
        for question, answer in calls:
            self._answer(question, answer)
        self._carry_over()
        if work is None:
            self._upkeep()
            return not over
        self._failpoint("received")
        parts = [Received(name, self.store.last(name) + 1, readings) for name, readings in work.readings.items()]
        if is_new and not self._flags.is_synchronous:
            self._hand_out(parts)
        if self.state is LogState.FULL and not self._make_room():
            return self._keep_for_later(work)
        done = self._commit(work)
        if done is None:
            return self._keep_for_later(work)
        self._accepted(work)
        self._failpoint("accepted")
        if self._flags.is_synchronous:
            self._hand_out(parts)
        answers, self._answers_of_work = self._answers_of_work, []
        settle(answers)
        self._on_done(done.frames)
        if done.dropped:
            log.warning("the quota cost %d readings", done.dropped, extra={"event": "log.quota", "readings": done.dropped})
        if self.store.wal_bytes() >= self._checkpoint_from:
            self._checkpoint()
        return True

    def _hand_out(self, parts: Sequence[Received]) -> None:
        for part in parts:
            self._on_received(part)

    def _answer(self, question: Question, answer: Future[Any]) -> None:
        if not answer.set_running_or_notify_cancel():
            return  # whoever asked has gone
        try:
            try:
                answer.set_result(question(self.store))
            except LOG_ERRORS as error:
                if not is_damage(error):
                    raise
                self._open_again(error)
                answer.set_result(question(self.store))
        except LOG_ERRORS as error:
            answer.set_exception(error)

    def _carry_over(self) -> None:
        """A part of a damaged log, if there is one."""
        if not self._salvage_is_due():
            return
        try:
            self.store.catch_up()
        except LOG_ERRORS as error:
            self._salvage_from_s = self._clock.monotonic_s() + RETRY_S
            if not is_full(error):
                self._open_again(error)
        else:
            if self.store.wal_bytes() >= self._checkpoint_from:
                self._checkpoint()
            if not self.store.is_salvaging:
                self._on_done(())  # consumers wait for it

    def _salvage_is_due(self) -> bool:
        return self.store.has_to_catch_up and self._clock.monotonic_s() >= self._salvage_from_s

    def _wait(self) -> None:
        """Until something is to be done, or for a while; linger a little for company. Holds the lock."""
        if self._stopping:
            return
        if self._held is not None or self._wal_too_long():
            self._wake.wait(RETRY_S)
            return
        self._idle = True
        until_s = self._clock.monotonic_s() + FREE_LINGER_S
        while (now_s := self._clock.monotonic_s()) < until_s:
            wait_s = self._framing.due_s(self.store, now_s, until_s) - now_s if self._sending else FREE_LINGER_S
            if self._wake.wait_for(self._due, timeout=min(FREE_LINGER_S, wait_s)) or wait_s >= FREE_LINGER_S:
                break
        self._idle = False
        if self._intake_waits() and not self._flags.is_synchronous:
            self._linger()

    def _linger(self) -> None:
        """Give more readings time to come, by lane. Holds the lock."""
        waiting_since: dict[Lane, float] = {}
        self._framing.first_came_s = self._clock.monotonic_s()
        while not (self._enough() or self._can_frame() or (self._freed and self._freed_is_due())):
            now_s = self._clock.monotonic_s()
            for lane in self._queues.waiting_lanes:
                waiting_since.setdefault(lane, now_s)
            wait_s = self._batching.wait_s(waiting_since, now_s)
            if wait_s <= 0 or not self._wake.wait(wait_s):
                return

    def _due(self) -> bool:
        if self._stopping or self._calls or self._intake_waits() or self._can_frame() or self._salvage_is_due():
            return True
        return bool(self._freed) and self._freed_is_due()

    def _intake_waits(self) -> bool:
        is_due = bool(self._positions) or self._queues.is_waiting or self._losses_are_due() or self._passed_are_due()
        return is_due and self._may_log()

    def _passed_are_due(self) -> bool:
        """A cursor can wait for company: a consumer that keeps up must not double the commits."""
        return bool(self._passed) and (self._stopping or self._clock.monotonic_s() - self._passed_since >= FREE_LINGER_S)

    def _may_log(self) -> bool:
        """Where readings are logged when they are sent: is somebody sending, and has a stream that waits room in the window?"""
        if self._flags.on_receipt or self._stopping or not self._queues.is_waiting:
            return True
        return self._sending and self.store.admits_any(self._queues.waiting_streams, self._framing.held_back(self.store))

    def _losses_are_due(self) -> bool:
        """Losses wait for company: a source that loses every second reading must not get a frame for each."""
        return self._lost_since is not None and (self._stopping or self._clock.monotonic_s() - self._lost_since >= LOSS_LINGER_S)

    def _freed_is_due(self) -> bool:
        """Deleting can wait for company, unless its room is wanted."""
        now_s = self._clock.monotonic_s()
        may_form = self.store.has_unframed(self._framing.held_back(self.store) | self._framing.filling(self.store, now_s))
        is_wanted = may_form or (not self._flags.on_receipt and self._queues.is_waiting)
        return (self._sending and is_wanted) or now_s - self._freed_since >= FREE_LINGER_S

    def _can_frame(self) -> bool:
        held_back = self._framing.held_back(self.store)
        return self._sending and self.store.can_frame(held_back, self._framing.filling(self.store, self._clock.monotonic_s()))

    def _enough(self) -> bool:
        return self._stopping or self._queues.longest >= self._config.commit_readings_max

    def _wal_too_long(self) -> bool:
        """A reader's snapshot keeps the write-ahead log from shrinking: nothing is written until it is gone."""
        too_long = self.store.wal_bytes() >= self._config.wal_bytes_max
        if too_long:
            self._say(LogState.WAITING)
        elif self.state is LogState.WAITING:
            self._say(LogState.GOOD)
        return too_long

    def _next_work(self) -> Work | None:
        """What this turn does; None where there is nothing, or it may not. Holds the lock."""
        if self._held is not None:
            return self._held
        if self._wal_too_long() and not self._stopping:
            return None
        readings: dict[str, Sequence[Reading]] = {}
        positions: dict[str, str] = {}
        lost: dict[str, dict[str, int]] = {}
        passed: dict[str, Passed] = {}
        if self._intake_waits():
            passed, self._passed = self._passed, {}
            self._answers_of_work, self._answers = self._answers, []
            positions, self._positions = self._positions, {}
            readings = self._queues.take()
            if self._losses_are_due():
                lost, self._lost_since = self._queues.take_losses(), None
        freed, self._freed = self._freed, []
        now_s, framing = self._clock.monotonic_s(), self._framing
        framing.takes(readings, now_s)
        filling = framing.filling(self.store, now_s, readings)
        work = Work(readings, positions, freed, self._sending, framing.held_back(self.store), filling, self._frame_bytes, lost, passed)
        return None if work.empty and not self._can_frame() else work

    def _accepted(self, work: Work) -> None:
        with self._lock:
            self._held = None
            if work.readings:
                self._batching.committed(sum(map(len, work.readings.values())), self._clock.monotonic_s())
            self._queues.accepted(work.readings)
            self._queues.stopped = self.store.stopped_lanes
            self._framing.done(self.store)
            self._say(LogState.GOOD)
            self._wake.notify_all()

    # disks that fail

    def _commit(self, work: Work) -> Done | None:
        """Do the work; None where the disk does not let us yet."""
        before = self.store.commit
        try:
            done = self.store.apply(work)
        except LOG_ERRORS as error:
            if is_full(error):
                self._on_full_disk(work)
                return None
            self._open_again(error)
        else:
            self._damages = 0
            return done
        return Done((), 0) if self.store.commit > before and not self._damages else None  # it may have been stored after all

    def _on_full_disk(self, work: Work) -> None:
        """Give up the reserve; deletions are taken out of the work, since they go first now."""
        self._say(LogState.FULL)
        self._reserve.give_up()
        with self._lock:
            self._freed = [*work.freed, *self._freed]
            self._held = replace(work, freed=())

    def _make_room(self) -> bool:
        """On a full disk: use the reserve to shrink the write-ahead log, delete what the cloud has, send on. Is the reserve back?

        New readings wait for that: what they would take of the reserve could never be deleted again.
        """
        with self._lock:
            freed, self._freed = self._freed, []
            sending = self._sending
        try:
            self.store.checkpoint()
            if freed or self._can_frame():
                self._on_done(self.store.apply(Work(freed=freed, sending=sending, frame_bytes=self._frame_bytes)).frames)
                self.store.checkpoint()
        except LOG_ERRORS as error:
            with self._lock:
                self._freed = freed + self._freed
            if not is_full(error):
                self._open_again(error)
        else:
            self._checkpoint()  # only a checkpoint shortens the file itself
        return self._reserve.keep()

    def _open_again(self, error: Exception) -> None:
        """Never try again on the same connection: what a failed fsync left behind is unknown.

        The checkpoint writes and syncs every page of the write-ahead log once more, so what is readable after it is durable. Damaged files
        are set aside by the opener. Raises what cannot be mended.
        """
        log.error("the event log's disk failed: %s", error, extra={"event": "log.io_error"})
        self._say(LogState.FAILING)
        with contextlib.suppress(*LOG_ERRORS):
            self.store.close()
        why: BaseException | None = error
        log_id = self.store.log_id
        while True:
            self._damages += why is not None and is_damage(why)
            if self._damages > DAMAGE_MAX:
                raise error
            try:
                self.store = self._opener(why)
                self.store.checkpoint()
            except LOG_ERRORS as again:
                log.error("the event log cannot be opened yet: %s", again, extra={"event": "log.io_error"})
                if self._stopping:
                    raise
                why = again if is_damage(again) else None
                self._over.wait(RETRY_S)
            else:
                if self.store.log_id != log_id:
                    self._on_renewed()
                return

    def _keep_for_later(self, work: Work) -> bool:
        """The next turn tries again; when stopping, this was never accepted and is let go."""
        with self._lock:
            self._held = self._held or work
            if self._stopping:
                lost = sum(map(len, work.readings.values()))
                log.error("stopped with %d readings that could not be stored", lost, extra={"event": "log.not_stored", "readings": lost})
            return not self._stopping

    def _say(self, state: LogState) -> None:
        if state is not self.state:
            level = logging.INFO if state is LogState.GOOD else logging.ERROR
            log.log(level, "the event log is %s", state, extra={"event": f"log.{state}"})
        self.state = state

    # upkeep

    def _checkpoint(self) -> None:
        """Copy and empty the write-ahead log. Where a reader is in the way, not again before it has grown as much once more."""
        try:
            done = self.store.checkpoint()
        except LOG_ERRORS as error:
            if is_full(error):
                return
            self._open_again(error)
            done = True
        self._checkpoint_from = CHECKPOINT_BYTES + (0 if done else self.store.wal_bytes())

    def _upkeep(self) -> None:
        """Nothing else to do: shrink what can shrink."""
        if self.store.wal_bytes() >= CHECKPOINT_BYTES:
            self._checkpoint()
        if self.state is LogState.GOOD:
            self._reserve.keep()
            self._give_back()

    def _give_back(self) -> None:
        """Return what a backlog took of the disk, a piece a turn, so that no reading waits long behind it."""
        try:
            self.store.give_back()
        except LOG_ERRORS as error:
            if not is_full(error):
                self._open_again(error)
