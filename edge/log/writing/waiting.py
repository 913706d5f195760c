"""What others have left for the writer's next turn, and when that turn is due.

No thread, no lock, no clock, no I/O.

The writer's lock is held around every call. Monotonic seconds are arguments, and so is the store:
it is another one after an error. What waits for company, and why:

* readings, a little, by lane: the slower the disk, the more share an fsync;
* what the cloud acknowledged, what was lost, cursors: an idle device must not pay an fsync for
  each, nor the cloud get a gap for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.keeping.work import Commit, FrameKey, Work
from edgewake.edge.log.state import LogBusyError, LogClosedError
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Passed
from edgewake.edge.log.writing.batching import Batching
from edgewake.edge.log.writing.filling import Filling
from edgewake.edge.log.writing.framing import Framing
from edgewake.edge.log.writing.queue import Queue, Queues
from edgewake.protocol.errors import RejectReason

FREE_LINGER_S: Final = 0.5
"""Acknowledged frames are deleted with the next commit, or after this time, twice it at most, since
nobody is woken for them: an idle device does not pay an fsync for each."""
LOSS_LINGER_S: Final = 1.0
"""Losses are said in one gap per stream and reason for so long: a gap takes a frame of its own.
Those that a source has passed over go with the place that it has then."""


class Waiting:
    """What the writer's next turn is to do, and when that is due; for its thread."""

    def __init__(
        self, config: LogConfig, lane: Callable[[str], Lane], *, readings_max: int
    ) -> None:
        self._flags = config.mode.flags
        self._lane = lane
        self._batching = Batching(config.linger_s())
        frame_linger_s = (
            self._batching.linger_s if self._flags.on_receipt else dict.fromkeys(Lane, 0.0)
        )
        self.framing = Framing(Filling(frame_linger_s, readings_max=readings_max), lane)
        self.queues = Queues(
            readings_max=config.queue_readings_max, bytes_max=config.queue_bytes_max
        )
        self.enough_readings = config.commit_readings_max
        """Readings of one stream that wait for no more."""
        self.sending = False
        """May frames be formed?"""
        self.frame_bytes: int | None = None
        """Bound of the next frames, where it is not the configuration's."""
        self.stopping = False
        """Nothing more is accepted, and what is here waits for nothing."""
        self.answers: list[Future[None]] = []
        """The callers to answer when what they left is durable."""
        self._positions: dict[str, str] = {}
        self._passed: dict[str, Passed] = {}
        self._passed_since = 0.0
        self._lost_since: float | None = None
        self._freed: list[tuple[FrameKey, RejectReason | None]] = []
        self._freed_since = 0.0

    # in

    def check_room(self, *queues: Queue) -> None:
        """Raises LogClosedError, LogBusyError where one of them has no room."""
        if self.stopping:
            raise LogClosedError
        for queue in queues:
            if not self.queues.has_room(queue):
                raise LogBusyError

    def check_promise(self, queue: Queue) -> None:
        """Raises as `check_room`, and LogBusyError where its lane would lose what comes now.

        What is added next is promised.
        """
        self.check_room(queue)
        if not self.queues.may_promise(queue):
            raise LogBusyError
        queue.is_promised = True

    def _promise(self, queues: Sequence[Queue]) -> None:
        if not all(map(self.queues.may_promise, queues)):
            raise LogBusyError
        for queue in queues:
            queue.is_promised = True

    def add(
        self,
        queue: Queue,
        readings: Iterable[Reading],
        position: tuple[str, str] | None,
        lost: Mapping[str, int],
    ) -> None:
        """Readings, the place of their source that follows them, and what was lost up to there.

        Losses of the stream wait no longer then: behind that place nobody looks for them again.
        """
        self.queues.add(queue, readings)
        for reason, count in lost.items():
            queue.lost[reason] = queue.lost.get(reason, 0) + count
        if position is not None:
            self._positions[position[0]] = position[1]
            if queue.lost:
                self._lost_since = float("-inf")

    def commit(self, commit: Commit, now_s: float) -> Future[None]:
        """All of this in one transaction; the answer comes when it is durable.

        Raises as `check_room`.
        """
        queues = {
            stream: self.queues.of(stream, self._lane(stream))
            for stream in (*commit.readings, *commit.lost)
        }
        self.check_room(*(queues[stream] for stream in commit.readings))
        if commit.is_promised:
            self._promise([queues[stream] for stream in commit.readings])
        for stream, reasons in commit.lost.items():
            self.add(queues[stream], (), None, reasons)
            self._lost_since = float("-inf")
        for stream, readings in commit.readings.items():
            self.queues.add(queues[stream], readings)
        self._positions |= commit.positions
        if commit.consumer is not None and commit.passed is not None:
            if commit.is_awaited or not self._passed:
                self._passed_since = float("-inf") if commit.is_awaited else now_s
            before = self._passed.get(commit.consumer)
            self._passed[commit.consumer] = (
                commit.passed if before is None else before.then(commit.passed)
            )
        answer: Future[None] = Future()
        self.answers.append(answer)
        return answer

    def lose(self, queue: Queue, count: int, reason: str, now_s: float) -> None:
        """Readings of the stream were dropped. Raises LogClosedError."""
        if self.stopping:
            raise LogClosedError
        queue.lost[reason] = queue.lost.get(reason, 0) + count
        if self._lost_since is None:
            self._lost_since = now_s

    def free(self, key: FrameKey, rejected: RejectReason | None, now_s: float) -> None:
        """The cloud acknowledged or refused a frame."""
        if not self._freed:
            self._freed_since = now_s
        self._freed.append((key, rejected))

    def put_back(self, freed: Sequence[tuple[FrameKey, RejectReason | None]]) -> None:
        """Freed frames whose deletion failed."""
        self._freed = [*freed, *self._freed]

    def passed(self, consumer: str) -> Passed | None:
        """What a consumer committed and no turn has taken yet."""
        return self._passed.get(consumer)

    # when

    def is_due(self, store: LogStore, now_s: float) -> bool:
        """Is there something that waits for nothing any more?"""
        if self.stopping or self.intake_is_due(store, now_s) or self.can_frame(store, now_s):
            return True
        return self._freed_is_due(store, now_s)

    def sleep_s(self, store: LogStore, now_s: float, until_s: float) -> float:
        """The time in which nothing can become due by itself, FREE_LINGER_S at most."""
        return self.framing.due_s(store, now_s, until_s) - now_s if self.sending else FREE_LINGER_S

    def intake_is_due(self, store: LogStore, now_s: float) -> bool:
        """Has something come that may be logged now?"""
        has_come = (
            bool(self._positions)
            or self.queues.is_waiting
            or self._losses_are_due(now_s)
            or self._passed_are_due(now_s)
        )
        return has_come and self._may_log(store)

    def linger_s(self, store: LogStore, waiting_since: dict[Lane, float], now_s: float) -> float:
        """How much longer the readings that have come wait for more.

        `waiting_since`: since when each lane has, kept by the caller for one turn.
        """
        if (
            self.stopping
            or self.queues.longest >= self.enough_readings
            or self.can_frame(store, now_s)
            or self._freed_is_due(store, now_s)
        ):
            return 0.0
        for lane in self.queues.waiting_lanes:
            waiting_since.setdefault(lane, now_s)
        return self._batching.wait_s(waiting_since, now_s)

    def wants_room(self, store: LogStore) -> bool:
        """Does something wait for room in the window, which an acknowledgement makes?"""
        return store.has_unframed(self.framing.held_back(store)) or (
            not self._flags.on_receipt and self.queues.is_waiting
        )

    def can_frame(self, store: LogStore, now_s: float) -> bool:
        """Is there a frame to be formed?"""
        return self.sending and store.can_frame(
            self.framing.held_back(store), self.framing.filling(store, now_s)
        )

    def _passed_are_due(self, now_s: float) -> bool:
        """A cursor can wait for company: a consumer that keeps up must not double the commits."""
        return bool(self._passed) and (self.stopping or now_s - self._passed_since >= FREE_LINGER_S)

    def _losses_are_due(self, now_s: float) -> bool:
        """Are losses due? They are collected for a while.

        A source that loses every second reading must not get a frame for each.
        """
        return self._lost_since is not None and (
            self.stopping or now_s - self._lost_since >= LOSS_LINGER_S
        )

    def _freed_is_due(self, store: LogStore, now_s: float) -> bool:
        """Deleting can wait for company, unless its room is wanted."""
        if not self._freed:
            return False
        may_form = store.has_unframed(
            self.framing.held_back(store) | self.framing.filling(store, now_s)
        )
        is_wanted = may_form or (not self._flags.on_receipt and self.queues.is_waiting)
        return (self.sending and is_wanted) or now_s - self._freed_since >= FREE_LINGER_S

    def _may_log(self, store: LogStore) -> bool:
        """May readings be logged now, where they are logged only when sent?

        Then the uplink must be sending, and a waiting stream must have room in the window.
        """
        if self._flags.on_receipt or self.stopping or not self.queues.is_waiting:
            return True
        return self.sending and store.admits_any(
            self.queues.waiting_streams, self.framing.held_back(store)
        )

    # out

    def take(self, store: LogStore, now_s: float) -> tuple[Work | None, list[Future[None]]]:
        """What the turn does, and who waits for it; None where there is nothing."""
        taken, answers = Work(), list[Future[None]]()
        if self.intake_is_due(store, now_s):
            answers, self.answers = self.answers, []
            taken = Work(
                self.queues.take(),
                self._positions,
                passed=self._passed,
                lost=self._take_losses(now_s),
                promised=self.queues.take_promised(),
            )
            self._positions, self._passed = {}, {}
        freed, self._freed = self._freed, []
        self.framing.takes(taken.readings, now_s)
        work = Work(
            taken.readings,
            taken.positions,
            freed,
            self.sending,
            self.framing.held_back(store),
            self.framing.filling(store, now_s, taken.readings),
            self.frame_bytes,
            taken.lost,
            taken.passed,
            taken.promised,
        )
        return (None if work.empty and not self.can_frame(store, now_s) else work), answers

    def take_freed(self, store: LogStore, now_s: float) -> Work | None:
        """Only what makes room: deletions, and frames that lead to more of them."""
        if not self._freed and not self.can_frame(store, now_s):
            return None
        freed, self._freed = self._freed, []
        held_back, filling = self.framing.held_back(store), self.framing.filling(store, now_s)
        return Work(
            freed=freed,
            sending=self.sending,
            paused=held_back,
            filling=filling,
            frame_bytes=self.frame_bytes,
        )

    def accepted(self, work: Work, store: LogStore, now_s: float) -> None:
        """The turn's work is durable."""
        if work.readings:
            self._batching.committed(sum(map(len, work.readings.values())), now_s)
        self.queues.accepted(work.readings)
        self.say_full(store)
        self.framing.done(store)

    def say_full(self, store: LogStore) -> None:
        """Let the queues know which lanes are full."""
        self.queues.stopped, self.queues.dropping = store.stopped_lanes, store.dropping_lanes

    def _take_losses(self, now_s: float) -> dict[str, dict[str, int]]:
        if not self._losses_are_due(now_s):
            return {}
        self._lost_since = None
        return self.queues.take_losses()
