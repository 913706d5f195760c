"""One micro-batch of a lane, from the rows that Spark computed to the transaction with its results.

Exactly once: a batch's results, its progress and the lane's record are one Kafka transaction. Spark
repeats a batch whose end it did not see; the lane's record then says that its offsets were emitted
(batch_commit), and it is only computed again, for the state. Of two drivers Kafka fences the older
one, so only one of them ever commits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from edgewake.cloud import failpoint
from edgewake.cloud.analysis.checkpoints import checkpoint
from edgewake.cloud.analysis.checkpoints.log_reader import LogReader
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.lanes.batch_range import as_text
from edgewake.cloud.analysis.lanes.batch_traces import BatchTraces
from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.analysis.lanes.emission import Emission
from edgewake.cloud.analysis.lanes.lane_plan import LanePlan
from edgewake.cloud.analysis.lanes.lane_time import LaneTime
from edgewake.cloud.analysis.plan import shed_policy
from edgewake.cloud.analysis.plan.late import LateWindow
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.results import emit, shed_report
from edgewake.cloud.analysis.results.batch_commit import (
    Novelty,
    Offsets,
    between,
    furthest,
    novelty,
)
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.analysis.schedule import shedder
from edgewake.cloud.analysis.schedule.lane_schedule import Done, LaneSchedule
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock, thread_cpu_s


class MicroBatches:
    """Computes the batches of one lane; Spark calls `compute` with each, in a thread of its own."""

    def __init__(
        self,
        config: AnalysisConfig,
        job: Job,
        clock: Clock,
        counters: Counters,
        folder: Path,
        *,
        plan: LanePlan,
        schedule: LaneSchedule,
        time: LaneTime,
        emission: Emission,
        log: LogReader,
        is_stopping: Callable[[], bool],
        traces: BatchTraces | None = None,
    ) -> None:
        """`folder`: the lane's checkpoint. `traces`: None where no spans are made."""
        self._traces, self._began_ms = traces, 0
        self._config, self._job, self._clock, self._counters = config, job, clock, counters
        self._folder, self._plan, self._schedule, self._time = folder, plan, schedule, time
        self._emission, self._log, self._is_stopping = emission, log, is_stopping
        self._meter = Meter(thread_cpu_s)
        self._batches_before = counters.batches
        self._last_s = clock.monotonic_s()

    def compute(self, changed: DataFrame, batch: int) -> None:
        """Raises Stopped, Unavailable, KafkaException, OSError, or what Spark does."""
        self._schedule.begins(self._clock.monotonic_s())
        self._began_ms = self._clock.now_ms()
        rows = self._plan.rows(changed)
        # Before anything is emitted: state that a worker wrote elsewhere would be lost, and the
        # next batch would go on from less than what results said.
        checkpoint.check_workers(self._config, self._folder, batch)
        reached = checkpoint.offsets_of(self._folder, batch)
        new = novelty(self._emission.record.offsets, reached)
        if new is Novelty.NONE:  # emitted before: it ran for the state of Spark alone
            self._schedule.repeated(self._clock.monotonic_s(), self._meter.taken())
        else:
            # After a power cut Spark must find these offsets: it would cut this batch elsewhere,
            # while the lane's record says that they were emitted.
            checkpoint.sync_offsets(self._folder, batch)
            observed = self._plan.observed()
            self._plan.suit(changed, rows.num_rows, observed.readings)
            self._schedule_next(self._emit(rows, observed, reached, new))
        self._plan.forget_to(self._emission.record.top)
        self._counters.batches += 1

    def _emit(self, rows: pa.Table, observed: Observed, reached: Offsets, new: Novelty) -> Done:
        """Write the batch's transaction and advance the lane."""
        before, queries, emission = self._emission.record, self._job.queries, self._emission
        # What it read, and what waits.
        read = between(before.offsets, reached) if before.offsets else observed.frames
        rate, left = self._rate(observed), self._plan.left(reached)
        # How far event time comes; while a lost state is built again nothing becomes final.
        self._time.observe(observed)
        top, late = before.top, list[LateWindow]()
        if new is Novelty.ALL:
            top = self._time.after(before, observed, reached, left, self._clock.now_ms())
        step = emission.step(top, self._meter)
        # Tables as they are now, then the readings that came too late.
        emission.catch_up(self._meter, self._is_stopping)
        if new is Novelty.ALL:
            late = self._late(rows, observed, step, reached)
        late_readings = emit.late_readings(late, queries)
        # Where the lane stands when all of this is committed.
        after = before.model_copy(
            update={
                "revision": step.revision,
                "top": step.top,
                "tops": dict(self._time.tops),
                "offsets": furthest(before.offsets, reached),
                "late": _added(before.late, late_readings),
            }
        )
        after = self._with_shedding(after, rows, step, new, left)
        # Results, states, what was late, progress and the lane's record: one transaction.
        broken: emit.Broken = {}
        traces = self._traces
        trace = () if traces is None else traces.begun(before.offsets, reached, self._began_ms)
        results = emission.write(
            emission.states.outputs(rows, step, broken),
            step,
            after,
            broken=broken,
            progress=self._progress(after, rate, left),
            why=f"its results up to {as_text(reached)}",
            late=late,
            trace=trace,
        )
        if traces is not None:
            traces.committed(step.revision, results)
        failpoint.reach(f"analysis.committed.{self._job.kind}")
        if self._plan.shedder is not None:
            self._plan.shedder.turn(emission.record)
        self._counters.count(observed, results, sum(late_readings.values()))
        waiting = None if left is None else sum(left.values())
        return Done(observed, rate, read, waiting, self._meter.taken())

    def _schedule_next(self, done: Done) -> None:
        records = self._schedule.records
        self._schedule.ends(
            done,
            batches=self._counters.batches - self._batches_before,
            is_isolated=bool(self._emission.record.isolated),
            now_s=self._clock.monotonic_s(),
            now_ms=self._clock.now_ms(),
        )
        if self._schedule.records != records:
            self._plan.set_limit(self._schedule.records)

    def _with_shedding(
        self,
        after: LaneRecord,
        rows: pa.Table,
        step: emit.Batch,
        new: Novelty,
        left: Mapping[int, int] | None,
    ) -> LaneRecord:
        """The record with the readings that the batch left out, and how many the next ones will."""
        if self._plan.shedder is None:
            return after
        after = shedder.counted(after, shed_report.by_query(rows, self._job.queries, step))
        if new is not Novelty.ALL:
            return after
        unread = None
        if left is not None:
            count = self._plan.partitions
            unread = {number % count: records for number, records in left.items() if records}
        now_ms = self._clock.now_ms()
        lag_ms = shed_policy.lag_ms(unread, self._time.received_at, now_ms)
        if lag_ms is None:
            return after
        topic = topics.stream_topic(self._job.stream)
        return self._plan.shedder.decided(after, topic, lag_ms, now_ms)

    def _late(
        self, rows: pa.Table, observed: Observed, step: emit.Batch, reached: Offsets
    ) -> list[LateWindow]:
        """The batch's late readings."""

        def frames() -> Iterator[bytes | None]:
            sources = self._plan.sources
            start = sources.flat(step.emitted)
            for number, stop in sources.flat(reached).items():
                topic, partition = sources.place(number)
                first = start.get(number, 0)
                for message in self._log.read(topic, partition, first, stop):
                    yield message.value()

        return self._job.late(rows, step, observed.oldest, frames)

    def _progress(
        self, after: LaneRecord, rate: float, left: Mapping[int, int] | None
    ) -> list[emit.Output]:
        waits = self._time.waits(after, self._clock.now_ms())
        left = self._plan.left(after.offsets) if left is None else left
        return self._emission.progress(after, waits, rate=rate, left=left)

    def silent_s(self) -> float:
        """Seconds since the last readings."""
        return self._clock.monotonic_s() - self._last_s

    def _rate(self, observed: Observed) -> float:
        now_s = self._clock.monotonic_s()
        # Two batches may begin within one tick of the clock.
        rate = observed.readings / max(now_s - self._last_s, 0.001)
        self._last_s = now_s
        return round(rate, 1)


def _added(before: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {**before, **{label: before.get(label, 0) + count for label, count in more.items()}}
