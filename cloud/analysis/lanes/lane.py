"""The life of a lane, which is one Spark query: planned, started, watched, stopped.

Its micro-batches are in micro_batch.py, their schedule in schedule/lane_schedule.py, and what is
emitted between them in silence.py. All of these belong to one start: a lane that failed is started
again as another `Lane`.
"""

from __future__ import annotations

import json
import logging
import threading
from concurrent.futures import Executor, Future
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from edgewake.cloud.analysis.checkpoints import checkpoint, unfinished
from edgewake.cloud.analysis.checkpoints.log_reader import LogReader
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job, lane_place
from edgewake.cloud.analysis.lanes import lane_start
from edgewake.cloud.analysis.lanes.batch_traces import BatchTraces, tracer_of
from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.analysis.lanes.emission import Emission, Stopped
from edgewake.cloud.analysis.lanes.failure_causes import cause_of, ended, fault_of
from edgewake.cloud.analysis.lanes.failures import Failure
from edgewake.cloud.analysis.lanes.lane_plan import LanePlan
from edgewake.cloud.analysis.lanes.lane_time import LaneTime, Upstream
from edgewake.cloud.analysis.lanes.micro_batch import MicroBatches
from edgewake.cloud.analysis.lanes.silence import Silence
from edgewake.cloud.analysis.results import lane_progress
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.transaction import LaneTransactions
from edgewake.cloud.analysis.schedule.lane_schedule import LaneSchedule
from edgewake.cloud.analysis.schedule.slow import Behind
from edgewake.protocol.clock import Clock
from edgewake.protocol.frames.corrected_time import AHEAD_MS_MAX

log = logging.getLogger("edgewake.analysis")

_WAITS: Final = ("Waiting for data to arrive", "Waiting for next trigger")
"""Spark's status of a query whose plan ran and that is waiting for data."""
PATIENCE_S: Final = 5.0
"""How long a stop waits for the current batch before Spark is told to abandon it: a slow query's
may take minutes."""
NOTE_TIMEOUT_S: Final = 1.0
"""How long a stopping lane waits until Spark has recorded its last batch; it takes milliseconds."""
NOTE_LOOK_S: Final = 0.01
STATE_EVERY_S: Final = 5.0
"""Seconds between two looks at how much state Spark keeps; each is a question to the JVM."""


@dataclass(frozen=True, slots=True)
class _Running:
    """What a lane has from its start on."""

    query: StreamingQuery
    emission: Emission
    batches: MicroBatches
    silence: Silence


@dataclass
class Lane:
    """A lane: call `plan` (optional), `start`, then `failure` now and then, then `stop`."""

    session: SparkSession
    config: AnalysisConfig
    job: Job
    clock: Clock
    counters: Counters = field(default_factory=Counters)
    emitted_rows: dict[str, EmittedRows] = field(default_factory=dict)
    """What is remembered of results, query by query, from one start of the lane to the next."""
    upstream: Upstream = field(default_factory=Upstream)
    broken: dict[str, str] = field(default_factory=dict)
    """Query (label) → why its results could not be made; it gets no more of them, the others go
    on."""

    def __post_init__(self) -> None:
        place = lane_place(self.job.queries[0])
        self.name = f"{place}-{self.job.kind}"
        self.checkpoint = self.config.kept_dir / "checkpoints" / place / self.job.kind
        self._plan = LanePlan(self.session, self.config, self.job)
        self._planning: Future[DataFrame] | None = None
        self._schedule = LaneSchedule(self.config, self.job)
        self._clients = ExitStack()
        """Closed when the lane stops."""
        self._clients.callback(self._plan.close)
        self._running: _Running | None = None
        self._started = threading.Event()
        self._turn = threading.Lock()
        """Held while a batch is computed, while a report is sent between two batches, and by a
        stop."""
        self._stopped = threading.Event()
        """Has it been asked to stop?"""
        self._is_over = False
        """Set when no further batch may begin."""
        self._batch = -1
        self._state_s = float("-inf")
        """When it was seen how much Spark keeps, on the monotonic clock."""
        self._batches_before = self.counters.batches
        self._failure: Failure | None = None

    def plan(self, beside: Executor) -> None:
        """Begin making the plan in the background; `start` waits for it.

        That takes a thousand calls of the JVM, during which another lane may be stopped and Kafka
        asked. Without this call `start` makes the plan itself.
        """
        self._planning = beside.submit(self._planned)

    @property
    def is_planned(self) -> bool:
        """Is planning over, with or without success?"""
        return self._planning is None or self._planning.done()

    def _planned(self) -> DataFrame:
        return self._plan.made(self._schedule.records)

    @property
    def is_running(self) -> bool:
        """Has it reported that it runs?"""
        return self._running is not None and self._running.emission.has_said_running

    @property
    def finished(self) -> int:
        """Batches that it finished since it was started."""
        return self.counters.batches - self._batches_before

    @property
    def record(self) -> LaneRecord:
        """Its committed position; only of a lane that was started."""
        assert self._running is not None
        return self._running.emission.record

    @property
    def query(self) -> StreamingQuery | None:
        """Spark's query; only of a lane that was started."""
        return None if self._running is None else self._running.query

    @property
    def behind(self) -> Behind:
        """How long it has been behind, for the search for slow queries."""
        return self._schedule.behind

    def start(self) -> None:
        """Read the committed position and start the Spark query.

        Raises LocalError, Unavailable, or what Spark says of the plan.
        """
        config, job, now_ms = self.config, self.job, self.clock.now_ms()
        self._batches_before = self.counters.batches
        self._schedule.polls(now_ms)
        # First of all the producer, which fences that of an earlier driver: only then is the record
        # that is read next the last one.
        transactions = self._clients.enter_context(
            closing(LaneTransactions(config.kafka, self.name))
        )
        log_reader = self._clients.enter_context(closing(LogReader(config.kafka)))
        before = lane_start.record_of(config, job, self.name, self.checkpoint)
        changed = self._planned() if self._planning is None else self._planning.result()
        most = unfinished.records_max(
            self.checkpoint, self._plan.ends.firsts, config.batch_records_max
        )
        if self._schedule.limit_to(most):
            # Spark asks a source for its limit once, so the plan that was made is of no use.
            changed = self._planned()
        record = lane_start.begun(
            config, job, self.name, before, self._plan.ends,
            has_checkpoint=checkpoint.has_begun(self.checkpoint), now_ms=self.clock.now_ms(),
        )  # fmt: skip
        if self._plan.shedder is not None:
            self._plan.shedder.turn(record)
        kept = lane_start.kept(config.kafka, job, before)
        tables = kept.states.follower(config.kafka)
        if tables is not None:
            self._clients.callback(tables.close)
        for label in self.emitted_rows.keys() - {registered.label for registered in job.queries}:
            del self.emitted_rows[label]
        emission = Emission(
            job, self.name, self.clock, self.counters, transactions,
            record=record, states=kept.states, tables=tables, withheld=kept.withheld,
            kept=kept.rows, emitted_rows=self.emitted_rows, broken=self.broken,
            unknown_to=dict.fromkeys(before.joined_at_offsets, self.clock.now_ms() + AHEAD_MS_MAX),
        )  # fmt: skip
        time = LaneTime(config, record, self._plan.sources, self._plan.partitions, self.upstream)
        tracer = tracer_of(config.traces)
        batches = MicroBatches(
            config, job, self.clock, self.counters, self.checkpoint,
            plan=self._plan, schedule=self._schedule, time=time, emission=emission,
            log=log_reader, is_stopping=self._stopped.is_set,
            traces=None if tracer is None
            else BatchTraces(tracer, self.name, log_reader, self.clock),
        )  # fmt: skip
        silence = Silence(
            job, self.clock, self._plan, time, emission,
            idle_s=config.idle_s,
            rests=lambda: self._schedule.rest_s(self.clock.now_ms()) > 0,
        )  # fmt: skip
        query = self._plan.start(changed, self.name, self.checkpoint, self._process)
        self._running = _Running(query, emission, batches, silence)
        self._started.set()

    def _process(self, changed: DataFrame, batch: int) -> None:
        """Process a batch that Spark calls with; Spark records its end when this returns."""
        self._started.wait()  # Spark may call before `start` has made what a batch uses
        with self._turn:
            if self._is_over or self._running is None:
                raise Stopped(self.name)
            self._batch = batch
            self._look_at_state(self._running)
            try:
                self._running.batches.compute(changed, batch)
            except Exception as error:
                self._failure = Failure(
                    fault_of(error),
                    cause_of(error),
                    checkpoint.offsets_if_known(self.checkpoint, batch),
                    batch,
                )
                raise
        # Outside the turn, so that a report or a stop need not wait until the pause is over. Spark
        # plans the next batch when this returns: the pause decides how much is in it.
        self._stopped.wait(self._schedule.rest_s(self.clock.now_ms()))
        self._schedule.polls(self.clock.now_ms())

    def _look_at_state(self, running: _Running) -> None:
        """See how much Spark keeps, as of the batch before: it says so some moments after it."""
        now_s = self.clock.monotonic_s()
        if now_s - self._state_s < STATE_EVERY_S:
            return
        told = running.query.lastProgress
        if told is not None:
            self._state_s = now_s
            running.emission.state = lane_progress.state_size(json.loads(told.json))

    def silent_s(self) -> float:
        """Seconds since the last readings; only of a lane that was started."""
        assert self._running is not None
        return self._running.batches.silent_s()

    def say_running(self) -> None:
        """Publish that the lane runs, once it does. Raises KafkaException.

        It runs when it has committed a batch, or when Spark has run the plan and waits for
        readings. Later calls publish what event time waits for whenever that changed, since without
        new records no batch does.
        """
        running = self._active()
        if running is None or not self._is_news(running):
            return
        if not self._turn.acquire(blocking=False):  # a batch runs, and says it
            return
        try:
            if not self._is_over:
                running.silence.say_running(self.silent_s())
        finally:
            self._turn.release()

    def _is_news(self, running: _Running) -> bool:
        if running.emission.has_said_running:
            return running.silence.has_news(self.silent_s())
        return self.finished > 0 or running.query.status["message"] in _WAITS

    def advance_in_silence(self) -> None:
        """After some silence advance event time until the last windows are final.

        Raises KafkaException.
        """
        running = self._active()
        if running is None or self.silent_s() < self.config.idle_s:
            return
        if not self._turn.acquire(blocking=False):  # a batch runs
            return
        try:
            if not self._is_over and self.silent_s() >= self.config.idle_s:
                running.silence.advance(self.silent_s())
        finally:
            self._turn.release()

    def _active(self) -> _Running | None:
        running = self._running
        return running if running is not None and running.query.isActive else None

    def failure(self) -> Failure | None:
        """The reason why it ended by itself; None while it runs."""
        if self._running is None or self._running.query.isActive:
            return None
        return self._failure or ended(self._running.query)

    def stop(self) -> None:
        """Wait for the open transaction and Spark's record of it, then end the Spark query."""
        self._stopped.set()  # who reads a long table gives it up
        if self._planning is not None:
            self._planning.exception()  # it uses clients that are closed now
        while not self._turn.acquire(timeout=PATIENCE_S):
            self._give_up()
        self._is_over = True
        self._turn.release()
        self._started.set()  # a batch that waits for a start that failed must see that it is over
        if self._running is not None:
            self._await_note()
            self._running.query.stop()
        self._clients.close()

    def _give_up(self) -> None:
        """Abandon the current batch, of which nothing has been emitted yet.

        A batch that is being emitted is not affected.
        """
        if self._running is not None:
            self.session.sparkContext.cancelJobGroup(str(self._running.query.runId))

    def _await_note(self) -> None:
        """Wait until Spark has recorded the last batch.

        Otherwise the batch would be computed again, and a query that was added meanwhile would see
        its readings.
        """
        if not self.finished:
            return
        # Spark says nothing when it has made its note, and it may die before: hence a look again
        # and again, and an end to it.
        deadline_s = self.clock.monotonic_s() + NOTE_TIMEOUT_S
        pause = threading.Event()
        while (
            not checkpoint.is_done(self.checkpoint, self._batch)
            and self.failure() is None
            and self.clock.monotonic_s() < deadline_s
        ):
            pause.wait(NOTE_LOOK_S)
