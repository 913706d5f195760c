"""A running lane: one Spark query, and what is done with each of its micro-batches.

Exactly once: a batch's results, its progress and the lane's record are one Kafka transaction. Spark
repeats a batch whose end it did not see; the lane's record then says that its offsets were emitted
(batch_commit), and it is only computed again, for the state. Of two drivers Kafka fences the older
one, so only one of them ever commits.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from edgewake.cloud import failpoint
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.folds.table_follower import TableFollower
from edgewake.cloud.analysis.jobs.job import Dials, Job, States, lane_place
from edgewake.cloud.analysis.jobs.kinds import KINDS
from edgewake.cloud.analysis.lanes import (
    checkpoint,
    schedule,
    shedder,
    state_parts,
    unfinished,
    waits_for,
)
from edgewake.cloud.analysis.lanes.batch_limit import BatchLimit, set_limit
from edgewake.cloud.analysis.lanes.batch_range import as_text
from edgewake.cloud.analysis.lanes.batch_rows import BatchRows
from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.analysis.lanes.failure_causes import cause_of, ended, fault_of
from edgewake.cloud.analysis.lanes.failures import Failure
from edgewake.cloud.analysis.lanes.kafka_source import source
from edgewake.cloud.analysis.lanes.log_reader import LogReader, kept_from
from edgewake.cloud.analysis.lanes.schedule_feedback import Looks
from edgewake.cloud.analysis.lanes.slow import Behind, Cost
from edgewake.cloud.analysis.lanes.state_rows import kept_rows, withheld_rows
from edgewake.cloud.analysis.lanes.upstream_hold import nothing_holds, nothing_to_say
from edgewake.cloud.analysis.plan import late, shed_policy
from edgewake.cloud.analysis.plan.observed import Observed, observed_in
from edgewake.cloud.analysis.results import emit, event_progress, lane_progress, shed_report
from edgewake.cloud.analysis.results.batch_commit import (
    Novelty,
    Offsets,
    between,
    furthest,
    novelty,
)
from edgewake.cloud.analysis.results.emitted_rows import Told
from edgewake.cloud.analysis.results.event_time import EventTime
from edgewake.cloud.analysis.results.lane_record import LaneRecord, begin, lacking, without_other
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.analysis.results.transaction import Ends, Transactions, read_lane_record
from edgewake.cloud.analysis.results.withheld import Withheld
from edgewake.cloud.analysis.spark import next_plan
from edgewake.cloud.analysis.spark.plan_values import PlanValues
from edgewake.cloud.kafka import topic_admin
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock, thread_cpu_s
from edgewake.protocol.corrected_time import AHEAD_MS_MAX

log = logging.getLogger("edgewake.analysis")

_WAITS: Final = ("Waiting for data to arrive", "Waiting for next trigger")
"""What Spark says of a query whose plan ran and that has nothing to do."""
ABSENCE_LOOK_S: Final = 0.5
"""By the clock, for event time ends with the readings: from one look at all keys to the next while
a stream is silent, whom absence is to be told of, and what found no partner."""
PATIENCE_S: Final = 5.0
"""How long a stop waits for the batch under way before Spark is told to give it up: one of a slow
query may take minutes."""
NOTE_TIMEOUT_S: Final = 1.0
"""How long a stopping lane waits for Spark's note of its last batch; it takes milliseconds."""


class Stopped(Exception):
    """The lane was asked to stop; the batch is computed again later."""


@dataclass
class Lane:
    """A lane: perhaps `plan`, `start`, then look at `failure` now and then, then `stop`."""

    session: SparkSession
    config: AnalysisConfig
    job: Job
    clock: Clock
    counters: Counters = field(default_factory=Counters)
    told: dict[str, Told] = field(default_factory=dict)
    """What is remembered of results, query by query, from one start of the lane to the next."""
    hold: Callable[[int], int | None] = nothing_holds
    """Time in ms → event time that must not be passed, if any (upstream_hold)."""
    why_held: Callable[[int], str] = nothing_to_say
    """Time in ms → why that is so, for people."""

    def __post_init__(self) -> None:
        self._place = lane_place(self.job.queries[0])
        self._sources = self.job.source_topics
        self.name = f"{self._place}-{self.job.kind}"
        self.topic = topics.stream_topic(self.job.stream)
        self.checkpoint = self.config.kept_dir / "checkpoints" / self._place / self.job.kind
        self._query: StreamingQuery | None = None
        self._plan: Future[DataFrame] | None = None
        self._started = threading.Event()
        self._turn = threading.Lock()
        self._pause = threading.Event()
        self._stopped = threading.Event()
        self._next_ms = self._looks_ms = (
            0  # since when Spark can ask where this batch ends: it plans after that
        )
        self._looks = Looks(self.config, self.job)
        self._failure: Failure | None = None
        self._stopping = False
        self._batches_before = self.counters.batches
        self._batch = -1
        self._partitions = 1
        self._tops: dict[int, int] = {}
        self._received_at: dict[int, int] = {}
        self._event_time = EventTime(self._partitions)
        self._unknown_to: dict[str, int] = {}
        self._states: States = self.job.new_states()
        self._parts = state_parts.Parts({})
        self._withheld = Withheld(())
        self._tables: TableFollower | None = None
        self._shedder: shedder.Shedder | None = None
        self._forgotten: PlanValues | None = None
        self._log: LogReader | None = None
        self._limit = self._limited(self.config.batch_records_max)
        self._rows = BatchRows(self.session, self.job.queries if self.job.has_spark_state else ())
        self._settings: Mapping[str, str] = {}
        self._absences_to, self._absences_s = 0, float("-inf")
        # What event time waits for, by the last batch and as it was said last.
        self._waits_for, self._said = ("", lane_progress.NOTHING)
        self._has_said_running = False
        self.broken: dict[str, str] = {}
        """Query (label) → why its results could not be finished; it gets none any more, and the
        others go on."""
        self._transactions: Transactions | None = None
        self._ends: Ends | None = None
        self._record: LaneRecord
        self._last_batch_s = self.clock.monotonic_s()
        self.behind, self._meter = Behind(), Meter(thread_cpu_s)

    def plan(self, beside: Executor) -> None:
        """Begin to make the plan: a thousand questions to the JVM, beside which another lane may
        end and Kafka be asked. `start` waits for it; without it `start` makes it itself.
        """
        self._plan = beside.submit(self._planned)

    @property
    def is_planned(self) -> bool:
        """Is the plan made, or will not be?"""
        return self._plan is None or self._plan.done()

    @property
    def is_running(self) -> bool:
        """Was it said that it runs?"""
        return self._has_said_running

    def start(self) -> None:
        """Read where it stands and start the Spark query.

        Raises Unavailable, or what Spark says of the plan.
        """
        self._batches_before, self._last_batch_s, self._looks_ms = (
            self.counters.batches,
            self.clock.monotonic_s(),
            self.clock.now_ms(),
        )
        self._transactions = Transactions(self.config.kafka, self.name)
        self._log = LogReader(self.config.kafka)
        new = LaneRecord(stream=self._place, lane=self.job.kind)
        record = read_lane_record(self.config.kafka, new.key) or new
        if checkpoint.remove_other_format(
            self.checkpoint, KINDS[self.job.kind].state_format, self.config.state_store
        ):
            why = "its state has another format or lies in another store, and is built again"
            log.warning("lane %s: %s", self.name, why, extra={"event": "checkpoint.removed"})
        if (mended := checkpoint.mend(self.checkpoint, record.offsets)) is not None:
            log.warning(
                "lane %s: checkpoint mended: %s",
                self.name,
                mended,
                extra={"event": "checkpoint.mended"},
            )
        changed = self._planned() if self._plan is None else self._plan.result()
        assert self._ends is not None
        most = unfinished.records_max(
            self.checkpoint, self._ends.firsts, self.config.batch_records_max
        )
        if most != self.config.batch_records_max:
            self._limit = self._limited(most)
            changed = self._planned()
        self._record = self._begin(record)
        if self._shedder is not None:
            self._shedder.turn(self._record)
        held = withheld_rows(self.config.kafka, self.job.queries)
        self._withheld = Withheld(self.job.queries, state_parts.joined(held))
        driven = self.job.is_driven
        rows = kept_rows(self.config.kafka, self.job.state_place) if driven else {}
        self._states = self.job.restored(state_parts.joined(rows), record)
        self._parts = state_parts.Parts(rows | held)
        self._tables = self._states.follower(self.config.kafka)
        self._tops = dict(self._record.tops)
        self._event_time = EventTime(self._partitions, int(self.config.event_time_wait_s * 1000))
        for label in self.told.keys() - {registered.label for registered in self.job.queries}:
            del self.told[label]
        self._unknown_to = dict.fromkeys(record.asked_from, self.clock.now_ms() + AHEAD_MS_MAX)
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", self.name)
        self._query = (
            changed.writeStream.queryName(self.name)
            .foreachBatch(self._process)
            .option("checkpointLocation", str(self.checkpoint))
            .outputMode("update")
            # Whether there is anything new, at full steps of it; after a batch not before `_rest`
            # has ended.
            .trigger(processingTime=f"{schedule.asks_ms(self.config.trigger_ms)} milliseconds")
            .start()
        )
        self._started.set()

    def _limited(self, most: int) -> BatchLimit:
        return BatchLimit(most, is_dear=self.job.is_driven or self.job.queries[0].is_apart)

    def _planned(self) -> DataFrame:
        """The plan, of topics that are there."""
        topic_admin.ensure_topics(self.config.kafka, self._sources.topics)
        self._ends = self._ends or Ends(self.config.kafka, self._sources)
        self._partitions = max(1, self._ends.partitions())
        return self._graph(
            source(
                self.session, self.config, *self._sources.topics, records_max=self._limit.records
            )
        )

    def _graph(self, records: DataFrame) -> DataFrame:
        levels: Mapping[str, Column] = {}
        if self.job.kind.sheds:
            self._shedder = shedder.Shedder(self.session, self.job.queries, self._partitions)
            levels = self._shedder.levels
        # Of a batch that a process before this one planned nothing is left out that Spark counted
        # in its state then.
        self._forgotten = PlanValues(self.session) if self.job.has_spark_state else None
        return self.job.graph(records, self._partitions, Dials(levels, self._forgotten))

    def _begin(self, record: LaneRecord) -> LaneRecord:
        assert self._ends is not None
        now_ms = self.clock.now_ms()
        has_checkpoint = any((self.checkpoint / "offsets").glob("[0-9]*"))
        kept = {} if has_checkpoint else self._ends.kept()
        for topic in self._sources.topics:
            places = {self._sources.place(number): end for number, (_, end) in kept.items()}
            record = without_other(
                record,
                topic,
                {partition: end for (name, partition), end in places.items() if name == topic},
            )
        computed = self._sources.flat(record.offsets)
        lost = {
            partition: (computed[partition], start)
            for partition, (start, _) in kept.items()
            if start > computed.get(partition, start)
        }
        if lost:
            log.warning(
                "lane %s: retention took readings before they were computed: %s",
                self.name,
                lost,
                extra={"event": "stream.lost"},
            )
        return begin(
            record,
            {registered.label for registered in self.job.queries},
            has_checkpoint=has_checkpoint,
            cut_to=self._cut_to(now_ms) if any(start > 0 for start, _ in kept.values()) else None,
            now_ms=now_ms,
        )

    def _cut_to(self, now_ms: int) -> int | None:
        """The event time, ms, from which on all topics have windows whole; None where retention
        took nothing. Raises Unavailable.
        """
        found = [
            kept_from(self.config.kafka, topic, now_ms=now_ms) for topic in self._sources.topics
        ]
        return max((at for at in found if at is not None), default=None)

    def say_running(self) -> None:
        """Say so when it is true and was not said yet: when a batch was committed, or Spark ran the
        plan and waits for readings; then what event time waits for when that changed, which where
        nothing comes no batch says. Raises KafkaException.
        """
        if self._query is None or not self._query.isActive:
            return
        is_news = (
            self._what_it_waits_for() != self._said if self._has_said_running else self._runs()
        )
        if not is_news or not self._turn.acquire(blocking=False):  # a batch runs, and says it
            return
        try:
            if not self._stopping:
                assert self._transactions is not None
                self._transactions.write(self._progress(self._record))
                self._has_said_running = True
        finally:
            self._turn.release()

    def _runs(self) -> bool:
        assert self._query is not None
        return self.finished > 0 or self._query.status["message"] in _WAITS

    def _what_it_waits_for(self) -> lane_progress.Waits:
        if why := self.why_held(self.clock.now_ms()) or self._waits_for:
            return lane_progress.Waits(why, stands=True)
        return lane_progress.Waits(
            waits_for.silence(self._silent_s(), self.config.idle_s) if self._record.tops else ""
        )

    def failure(self) -> Failure | None:
        """Why it ended by itself; None while it runs."""
        if self._query is None or self._query.isActive:
            return None
        return self._failure or ended(self._query)

    def stop(self) -> None:
        """Wait for the transaction under way and for Spark's note of it, then end the Spark
        query.
        """
        self._stopped.set()  # who reads a long table gives it up
        if self._plan is not None:
            self._plan.exception()  # it uses clients that are closed now
        while not self._turn.acquire(timeout=PATIENCE_S):
            self._give_up()
        self._stopping = True
        self._turn.release()
        self._started.set()  # a batch that waits for a start that failed must see that it is over
        if self._query is not None:
            self._await_note()
            self._query.stop()
        for client in (self._transactions, self._ends, self._tables, self._log):
            if client is not None:
                client.close()

    def _give_up(self) -> None:
        """Do not let Spark go on computing the batch under way: nothing of it was told yet.

        What is being told is not touched by it.
        """
        if self._query is not None:
            self.session.sparkContext.cancelJobGroup(str(self._query.runId))

    def _await_note(self) -> None:
        """Without Spark's note the batch would be computed again, and a query that was added
        meanwhile would see its readings.
        """
        if not self.finished:
            return
        deadline_s = self.clock.monotonic_s() + NOTE_TIMEOUT_S
        while (
            not checkpoint.is_done(self.checkpoint, self._batch)
            and self.failure() is None
            and self.clock.monotonic_s() < deadline_s
        ):
            self._pause.wait(0.01)

    @property
    def finished(self) -> int:
        """Batches that it finished since it was started."""
        return self.counters.batches - self._batches_before

    @property
    def record(self) -> LaneRecord:
        """Where it stands, as committed; only of a lane that was started."""
        return self._record

    def _process(self, changed: DataFrame, batch: int) -> None:
        self._started.wait()
        with self._turn:
            if self._stopping:
                raise Stopped(self.name)
            try:
                self._compute(changed, batch)
            except Exception as error:
                self._failure = Failure(
                    fault_of(error),
                    cause_of(error),
                    checkpoint.offsets_if_known(self.checkpoint, batch),
                    batch,
                )
                raise
        self._rest()

    def _rest(self) -> None:
        """Until the next batch is worth its cost (schedule).

        Spark notes the end of this one afterwards; a stop ends the rest.
        """
        # No longer than ever, however far the clock is set back meanwhile.
        longest_ms = max(self.config.trigger_ms, self.config.calm_trigger_ms)
        self._stopped.wait(min(self._next_ms - self.clock.now_ms(), longest_ms) / 1000)
        self._looks_ms = self.clock.now_ms()

    def _compute(self, changed: DataFrame, batch: int) -> None:
        self._batch, self._next_ms, began_s = batch, 0, self.clock.monotonic_s()
        self.behind.begins(began_s)
        unread, read, is_cut_off = 0, 0, False
        rows = self._rows.collected(changed)
        checkpoint.check_workers(self.config, self.checkpoint, batch)
        reached = checkpoint.offsets_of(self.checkpoint, batch)
        new = novelty(self._record.offsets, reached)
        if new is not Novelty.NONE:
            checkpoint.sync_offsets(self.checkpoint, batch)
            observed = self._observed()
            self._settings = next_plan.turned(
                changed, rows.num_rows, observed.readings, before=self._settings
            )
            rate, left = self._rate(observed), self._left(reached)
            read = (
                between(self._record.offsets, reached) if self._record.offsets else observed.frames
            )
            self._emit(rows, observed, reached, new, rate, left)
            unread = sum((left or {}).values())
            next_ms = self._looks.next_ms(
                self._looks_ms,
                rows,
                observed,
                rate=rate,
                left=None if left is None else unread,
                batches=self.finished,
            )
            took_s = self.clock.monotonic_s() - began_s
            is_cut_off = self._is_cut_off(read, observed.readings, took_s, unread)
            if is_cut_off:
                self._looks.forget()
            self._next_ms = 0 if is_cut_off else next_ms
            if self._record.apart:  # the other lanes have the machine for as long as it had it
                self._next_ms = max(self._next_ms, self.clock.now_ms() + int(took_s * 1000))
        self.behind.ends(
            self.clock.monotonic_s(),
            unread,
            is_cut_off=is_cut_off,
            cost=Cost(self._meter.taken(), read),
        )
        self._tell_spark()
        self.counters.batches += 1

    def _is_cut_off(self, read: int, readings: int, took_s: float, unread: int) -> bool:
        """Had the batch as many records as it might, and are there more? Sets how many the next one
        may have.
        """
        assert self._query is not None
        before = self._limit.records
        is_cut_off = self._limit.learn(read, readings, took_s, left=unread)
        if self._limit.records != before:
            set_limit(self.session, self._query, self._limit.records)
        return is_cut_off

    def _with_shedding(
        self,
        after: LaneRecord,
        rows: pa.Table,
        step: emit.Batch,
        new: Novelty,
        left: Mapping[int, int] | None,
    ) -> LaneRecord:
        """With what was left out of the batch, and how much of the next ones is."""
        if self._shedder is None:
            return after
        after = shedder.counted(after, shed_report.by_query(rows, self.job.queries, step))
        unread = (
            None
            if left is None
            else {
                partition % self._partitions: records
                for partition, records in left.items()
                if records
            }
        )
        now_ms = self.clock.now_ms()
        lag_ms = shed_policy.lag_ms(unread, self._received_at, now_ms)
        return (
            after
            if lag_ms is None or new is not Novelty.ALL
            else self._shedder.decided(after, self.topic, lag_ms, now_ms)
        )

    def _tell_spark(self) -> None:
        """Up to where Spark may forget windows, from the next batch on; a repeated batch forgets
        what it forgot before.
        """
        if self._record.top is not None and self._query is not None:
            # Spark has no public way to set a watermark: its own is the highest event time of all
            # partitions, or needs a source for each.
            top = event_progress.for_spark(self._record.top)
            self._query._jsq.streamingQuery().watermarkTracker().setWatermark(top)
            if self._forgotten is not None:
                self._forgotten.set(0, top)

    def _observed(self) -> Observed:
        # Spark hands out what was observed only after the batch; within it, it is in the plan that
        # has just run.
        assert self._query is not None
        observed: Any = self._query._jsq.streamingQuery().lastExecution().observedMetrics()
        return observed_in(json.loads(observed.get(late.OBSERVED).get().json()), self._partitions)

    def _left(self, reached: Offsets) -> dict[int, int] | None:
        assert self._ends is not None
        return self._ends.left(self._sources.flat(reached))

    def _emit(
        self,
        rows: pa.Table,
        observed: Observed,
        reached: Offsets,
        new: Novelty,
        rate: float,
        left: Mapping[int, int] | None,
    ) -> None:
        record, queries = self._record, self.job.queries
        offsets = self._sources.flat(reached)
        for known, latest in (
            (self._tops, observed.tops),
            (self._received_at, observed.received_at),
        ):
            known |= {
                partition: max(at, known.get(partition, at)) for partition, at in latest.items()
            }
        step = emit.Batch(
            revision=record.revision + 1,
            top_before=record.top,
            top=self._progress_of_time(observed, offsets, left)
            if new is Novelty.ALL
            else record.top,
            complete_from=record.complete_from,
            told=self.told,
            unknown_to=self._unknown_to,
            emitted=record.offsets,
            meter=self._meter,
        )
        self._catch_up()
        late_windows = self._late(rows, observed, step, reached) if new is Novelty.ALL else []
        late_readings = emit.late_readings(late_windows, queries)
        after = record.model_copy(
            update={
                "revision": step.revision,
                "top": step.top,
                "tops": dict(self._tops),
                "offsets": furthest(record.offsets, reached),
                "late": record.late
                | {
                    label: record.late.get(label, 0) + count
                    for label, count in late_readings.items()
                },
            }
        )
        after = self._with_shedding(after, rows, step, new, left)
        progress = self._progress(after, rate, left)
        now_ms = self.clock.now_ms()
        results = 0

        def outputs() -> Iterator[emit.Output | emit.Outputs]:
            nonlocal results, after
            broken: emit.Broken = {}
            for output in self._withheld.through(
                self._states.outputs(rows, step, broken), step, broken
            ):
                if isinstance(output, emit.Outputs):
                    results += len(output.keys)
                    yield from emit.all_bounded(output, now_ms=now_ms)
                else:
                    results += 1
                    yield from self._cut(output, now_ms)
            yield from emit.late_outputs(late_windows, queries, step)
            after = self._with_lacking(after, step)
            names = {label.rpartition("@")[0].encode() for label in broken}
            yield from (output for output in progress if output.key not in names)
            yield emit.Output(topics.LANES, after.key, after.model_dump_json().encode())
            self.broken |= {
                label: f"its results up to {as_text(reached)} cannot be made: {why}"
                for label, why in broken.items()
            }

        assert self._transactions is not None
        self._transactions.write(outputs())
        failpoint.reach(f"analysis.committed.{self.job.kind}")
        if self._shedder is not None:
            self._shedder.turn(after)
        self._record, self._has_said_running = after, True
        self.counters.count(observed, results, sum(late_readings.values()))

    def _catch_up(self) -> None:
        """Read what is new of the tables. Raises Stopped, Unavailable."""
        if self._tables is None:
            return
        closed = {
            registered.label: emit.closed(registered.query, self._record.top)
            for registered in self.job.queries
        }
        for _ in self._states.catch_up(self._tables, closed, self._meter):
            if self._stopped.is_set():
                raise Stopped(self.name)

    def _with_lacking(self, after: LaneRecord, step: emit.Batch) -> LaneRecord:
        """With what was forgotten because more was open than is kept."""
        if step.lacks_before:
            log.warning(
                "lane %s: more is open than is kept; what had no reading for longest was "
                "forgotten of %s", self.name,
                ", ".join(step.lacks_before), extra={"event": "states.forgotten"},
            )  # fmt: skip
            self.counters.forgotten += 1
        return lacking(after, step.lacks_before)

    def _cut(self, output: emit.Output, now_ms: int) -> Iterator[emit.Output]:
        """Its records, each as large as one may be."""
        if output.topic != topics.WINDOWS:
            yield emit.bounded(output, now_ms=now_ms)
            return
        for key, value in self._parts.cut(output.key, output.value):
            yield emit.bounded(emit.Output(topics.WINDOWS, key, value), now_ms=now_ms)

    def _progress_of_time(
        self, observed: Observed, reached: Mapping[int, int], left: Mapping[int, int] | None
    ) -> int | None:
        now_ms = self.clock.now_ms()
        top = self._event_time.after(
            self._record.top, tops=self._tops, received_at=self._received_at,
            start=self._sources.flat(self._record.offsets),
            reached=reached, left=left, oldest=observed.oldest, now_ms=now_ms,
        )  # fmt: skip
        self._waits_for = waits_for.unread(
            self._event_time.behind, is_known=left is not None, is_late=self._event_time.is_late
        )
        return event_progress.held(self._record.top, top, self.hold(now_ms))

    def _late(
        self, rows: pa.Table, observed: Observed, step: emit.Batch, reached: Offsets
    ) -> list[late.LateWindow]:
        def frames() -> Iterator[bytes | None]:
            assert self._log is not None
            start = self._sources.flat(self._record.offsets)
            for number, stop in self._sources.flat(reached).items():
                place = self._sources.place(number)
                for message in self._log.read(*place, start.get(number, 0), stop):
                    yield message.value()

        return self.job.late(rows, step, observed.oldest, frames)

    def advance_in_silence(self) -> None:
        """Where nothing came for a while, let event time go on until the last windows are final.

        Raises KafkaException.
        """
        if self._query is None or not self._query.isActive or self._silent_s() < self.config.idle_s:
            return
        if not self._turn.acquire(blocking=False):  # a batch runs
            return
        try:
            self._announce_silence()
        finally:
            self._turn.release()

    def _announce_silence(self) -> None:
        record, silent_s = self._record, self._silent_s()
        if self._stopping or silent_s < self.config.idle_s:
            return
        queries = [registered.query for registered in self.job.queries]
        silence = event_progress.progress_in_silence(
            record.top, record.tops, int(silent_s * 1000), queries
        )
        top = event_progress.held(record.top, silence, self.hold(self.clock.now_ms()))
        step = emit.Batch(
            revision=record.revision + 1,
            top_before=record.top,
            top=top,
            complete_from=record.complete_from,
            told=self.told,
            unknown_to=self._unknown_to,
        )
        if not self._is_news(step):
            return
        assert self._transactions is not None
        left = self._left(record.offsets)
        if left is None or any(left.values()):
            return
        after = record.model_copy(update={"revision": step.revision, "top": top})
        self._waits_for = ""
        broken: emit.Broken = {}
        absences = self._states.in_silence(step, broken)
        now_ms = self.clock.now_ms()
        told = self._withheld.through(
            [*absences, *emit.watermarks(self.job.queries, step)], step, broken
        )
        outputs = [record for output in emit.each(told) for record in self._cut(output, now_ms)]
        after = self._with_lacking(after, step)
        outputs += self._progress(after, 0.0, left)
        self._transactions.write(
            [*outputs, emit.Output(topics.LANES, after.key, after.model_dump_json().encode())]
        )
        self._record = after
        self.broken |= {
            label: f"what it tells in silence cannot be made: {why}"
            for label, why in broken.items()
        }
        self._tell_spark()

    def _is_news(self, step: emit.Batch) -> bool:
        """Does anything become of event time having come so far?"""
        if any(emit.watermarks(self.job.queries, step)):
            return True
        now_s = self.clock.monotonic_s()
        is_due = step.top != self._absences_to and now_s - self._absences_s >= ABSENCE_LOOK_S
        if step.top is None or not is_due:
            return False
        self._absences_to, self._absences_s = step.top, now_s
        return self._states.is_due(step.top)

    def _silent_s(self) -> float:
        return self.clock.monotonic_s() - self._last_batch_s

    def _rate(self, observed: Observed) -> float:
        now_s = self.clock.monotonic_s()
        rate = observed.readings / max(now_s - self._last_batch_s, 0.001)
        self._last_batch_s = now_s
        return round(rate, 1)

    def _progress(
        self, record: LaneRecord, rate: float | None = None, left: Mapping[int, int] | None = None
    ) -> list[emit.Output]:
        if left is None and self._ends is not None:
            left = self._left(record.offsets)
        queries = [
            registered for registered in self.job.queries if registered.label not in self.broken
        ]
        remarks = self._states.remarks(self._tables)
        self._said = self._what_it_waits_for()
        now_ms = self.clock.now_ms()
        return lane_progress.outputs(
            queries, record, rate=rate, left=left, now_ms=now_ms, remarks=remarks, waits=self._said
        )
