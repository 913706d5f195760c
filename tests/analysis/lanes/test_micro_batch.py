"""One micro-batch, top to bottom: what is emitted, where the lane stands after it, and what a
failure at any of its steps leaves. Spark's plan is the test's; all else is real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from edgewake.cloud.analysis.checkpoints.log_reader import LogReader
from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.job import Stateless
from edgewake.cloud.analysis.lanes.counters import Counters
from edgewake.cloud.analysis.lanes.emission import Emission
from edgewake.cloud.analysis.lanes.lane_plan import LanePlan
from edgewake.cloud.analysis.lanes.lane_time import LaneTime, Upstream
from edgewake.cloud.analysis.lanes.micro_batch import MicroBatches
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.batch_commit import Offsets
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.withheld import Withheld
from edgewake.cloud.analysis.schedule.lane_schedule import LaneSchedule
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.errors import LocalError, Unavailable
from edgewake.protocol.ops.query import Progress
from tests.analysis.lanes.test_emission import Written, job_of_two, row

T0 = 1_790_000_040_000
CONFIG = AnalysisConfig(kafka=KafkaConfig(bootstrap="127.0.0.1:9092"))
TOPIC = "ew.s.s"


class Plan:
    """What Spark computed, as the test says; notes what it is asked for."""

    def __init__(self, sources: Any) -> None:
        self.sources, self.partitions, self.shedder = sources, 2, None
        self.observes = Observed(1, 1, T0, 0, {0: T0}, {0: T0})
        self.unread: dict[int, int] | None = {0: 0, 1: 0}
        self.forgot: list[int | None] = []
        self.limits: list[int] = []
        self.suited = 0
        self.on_rows: Callable[[], None] = lambda: None

    def rows(self, changed: object) -> pa.Table:
        self.on_rows()
        return pa.table({"n": [1]})

    def observed(self) -> Observed:
        return self.observes

    def suit(self, changed: object, rows: int, readings: int) -> None:
        self.suited += 1

    def left(self, offsets: Offsets) -> Mapping[int, int] | None:
        return self.unread

    def forget_to(self, top: int | None) -> None:
        self.forgot.append(top)

    def set_limit(self, records: int) -> None:
        self.limits.append(records)


class Lane:
    """A lane that stands at `offsets`."""

    def __init__(self, folder: Path, offsets: Offsets | None = None, **changes: Any) -> None:
        self.job, self.written, self.counters = job_of_two(), Written(), Counters()
        self.clock, self.folder = FakeClock(T0), folder
        (folder / "offsets").mkdir(parents=True)
        stands = {} if offsets is None else {TOPIC: dict(offsets[TOPIC])}
        record = LaneRecord(stream="s", lane="plain", offsets=stands, **changes)
        transactions: Any = self.written
        self.fails: Exception | None = None
        self.emission = Emission(
            self.job,
            "s-plain",
            self.clock,
            self.counters,
            transactions,
            record=record,
            states=Stateless(lambda *_: self._made()),
            tables=None,
            withheld=Withheld(self.job.queries),
            kept={},
            emitted_rows={},
            unknown_to={},
            broken={},
        )
        self.plan = Plan(self.job.source_topics)
        self.schedule = LaneSchedule(CONFIG, self.job)
        time = LaneTime(CONFIG, record, self.job.source_topics, 2, Upstream())
        self.batches = MicroBatches(
            CONFIG,
            self.job,
            self.clock,
            self.counters,
            folder,
            plan=cast(LanePlan, self.plan),
            schedule=self.schedule,
            time=time,
            emission=self.emission,
            log=cast(LogReader, None),
            is_stopping=lambda: False,
        )

    def _made(self) -> Iterator[emit.Output]:
        yield row(self.job)
        if self.fails is not None:
            raise self.fails

    def run(self, batch: int, zero: int, one: int = 0, topic: str = TOPIC) -> None:
        """A batch that ends at these offsets."""
        ends = orjson.dumps({topic: {"0": zero, "1": one}})
        (self.folder / "offsets" / str(batch)).write_bytes(b"v1\n{}\n" + ends)
        self.batches.compute(cast(DataFrame, None), batch)

    @property
    def record(self) -> LaneRecord:
        return self.emission.record

    @property
    def committed(self) -> list[str]:
        return [one.topic for one in self.written.committed]

    @property
    def progress(self) -> Progress:
        found = [one for one in self.written.committed if one.topic == topics.PROGRESS]
        return Progress.model_validate_json(found[-1].value or b"")


def at(zero: int, one: int = 0) -> dict[str, dict[int, int]]:
    return {TOPIC: {0: zero, 1: one}}


def test_a_batch_is_one_transaction_that_ends_with_where_the_lane_stands(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.run(0, 5)
    assert lane.committed[0] == lane.job.queries[0].topic
    assert lane.committed[-1] == topics.LANES
    assert (lane.record.offsets, lane.record.top, lane.record.revision) == (at(5), T0, 0)
    assert (lane.counters.batches, lane.counters.results, lane.counters.readings) == (1, 1, 1)
    assert lane.plan.forgot == [T0], "Spark forgets what is final from the next batch on"


@pytest.mark.parametrize(("zero", "one"), [(5, 5), (4, 5), (0, 0)])
def test_what_was_emitted_is_computed_again_for_the_state_and_not_emitted(
    tmp_path: Path, zero: int, one: int
) -> None:
    """Spark repeats a batch whose end it did not see, and all of them for a lost state."""
    lane = Lane(tmp_path, at(5, 5), top=T0 - 1)
    lane.run(7, zero, one)
    assert (lane.committed, lane.record.offsets) == ([], at(5, 5))
    assert (lane.plan.suited, lane.plan.forgot) == (0, [T0 - 1])
    assert lane.counters.batches == 1
    assert lane.schedule.rest_s(lane.clock.now_ms()) <= 0, "the next one is at once"


def test_one_record_more_is_emitted_and_the_number_of_the_batch_proves_nothing(
    tmp_path: Path,
) -> None:
    lane = Lane(tmp_path, at(5, 5))
    lane.run(7, 6, 5)
    lane.run(7, 7, 5)  # planned again after a power cut, with other offsets
    assert lane.record.offsets == at(7, 5)
    assert lane.committed.count(topics.LANES) == 2


def test_where_one_partition_is_behind_what_was_emitted_nothing_becomes_final(
    tmp_path: Path,
) -> None:
    """A lost state is being built again: windows lack what is still to be read once more."""
    lane = Lane(tmp_path, at(5, 5), top=T0 - 60_000)
    lane.run(1, 9, 2)
    assert lane.record.offsets == at(9, 5), "of each partition the furthest"
    assert lane.record.top == T0 - 60_000
    lane.run(2, 9, 6)
    assert lane.record.top == T0


@pytest.mark.parametrize("error", [OSError("Kafka is away"), ValueError("a bug")])
def test_a_batch_that_fails_leaves_the_lane_where_it_was(tmp_path: Path, error: Exception) -> None:
    lane = Lane(tmp_path, at(5, 5), top=T0 - 1)
    lane.fails = error
    before = lane.record
    with pytest.raises(type(error)):
        lane.run(3, 9, 9)
    assert (lane.record, lane.committed, lane.counters.batches) == (before, [], 0)
    assert lane.plan.forgot == [], "no window is forgotten that was not emitted"
    lane.fails = None
    lane.run(3, 9, 9)
    assert (lane.record.offsets, lane.counters.results) == (at(9, 9), 1)


def test_without_the_note_of_its_end_a_batch_is_not_emitted(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    with pytest.raises(LocalError, match="expected a batch's offsets"):
        lane.batches.compute(cast(DataFrame, None), 0)
    assert lane.committed == []


def test_a_state_that_a_worker_keeps_elsewhere_stops_the_batch_before_anything_is_emitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Lane(tmp_path)
    (tmp_path / "state" / "0").mkdir(parents=True)
    elsewhere = CONFIG.model_copy(update={"master": "spark://elsewhere:7077"})
    monkeypatch.setattr(lane.batches, "_config", elsewhere)
    with pytest.raises(Unavailable, match="shared_dir"):
        lane.run(0, 5)
    assert (lane.committed, lane.record.offsets) == ([], {})


def test_a_batch_that_spark_cannot_run_counts_for_nothing(tmp_path: Path) -> None:
    lane = Lane(tmp_path)

    def fails() -> None:
        raise RuntimeError("Job aborted")

    lane.plan.on_rows = fails
    with pytest.raises(RuntimeError):
        lane.run(0, 5)
    assert (lane.committed, lane.counters.batches) == ([], 0)


def test_silence_begins_at_the_last_batch_that_had_something_new(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.clock.advance(10)
    lane.run(0, 5)
    assert lane.batches.silent_s() == 0
    lane.clock.advance(20)
    lane.run(0, 5)
    assert lane.batches.silent_s() == 20, "what is repeated is no reading"


def test_two_batches_within_one_tick_of_the_clock_have_a_rate(tmp_path: Path) -> None:
    lane = Lane(tmp_path)
    lane.clock.advance(2)
    lane.run(0, 5)
    assert lane.progress.readings_per_s == 0.5
    lane.run(1, 6)
    assert lane.progress.readings_per_s == 1000.0


@pytest.mark.parametrize(("unread", "expected"), [({0: 3, 1: 4}, 7), ({0: 0, 1: 0}, 0)])
def test_progress_says_what_waits(tmp_path: Path, unread: dict[int, int], expected: int) -> None:
    lane = Lane(tmp_path)
    lane.plan.unread = unread
    lane.run(0, 5)
    assert lane.progress.lag == expected


def test_where_kafka_does_not_say_what_waits_the_batch_is_emitted_all_the_same(
    tmp_path: Path,
) -> None:
    lane = Lane(tmp_path)
    lane.plan.unread = None
    lane.run(0, 5)
    assert (lane.record.offsets, lane.counters.results) == (at(5), 1)
