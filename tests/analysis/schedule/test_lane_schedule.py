"""When a lane's next batch begins, and how large it may be. No Kafka, no Spark."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.aggregate_job import AggregateJob
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.schedule.lane_schedule import Done, LaneSchedule
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.protocol.frames.stream import Stream
from tests.analysis.support import registered, sql

END = 1_790_000_040_000
"""A window ends."""
CONFIG = AnalysisConfig(
    kafka=KafkaConfig(bootstrap="127.0.0.1:9092"), trigger_ms=1_000, calm_trigger_ms=5_000
)


@pytest.fixture
def schedule() -> LaneSchedule:
    text = sql("s", "device, count(*) AS n", "window(event_time, '5 seconds'), device")
    (query,) = registered(text, streams=[Stream(name="s")])
    return LaneSchedule(CONFIG, AggregateJob(LaneKind.PLAIN, ("s",), (), (query,)))


def done(*, read: int = 1, left: int | None = 0, oldest: int = END + 1) -> Done:
    """A batch of records of one reading each."""
    return Done(Observed(read, read, oldest, 0, {}, {}), 1.0, read, left, {})


def batch(schedule: LaneSchedule, one: Done, *, took_s: float, is_isolated: bool = False) -> None:
    """It begins a hundred milliseconds after END."""
    schedule.polls(END + 100)
    schedule.begins(10.0)
    now_ms = END + 100 + int(took_s * 1000)
    schedule.ends(one, batches=0, is_isolated=is_isolated, now_s=10.0 + took_s, now_ms=now_ms)


def test_a_calm_lane_rests_until_readings_may_have_come_that_took_longer(
    schedule: LaneSchedule,
) -> None:
    batch(schedule, done(), took_s=0.1)
    assert schedule.rest_s(END + 200) == pytest.approx(0.18)


def test_a_batch_that_had_as_much_as_it_might_is_followed_at_once_and_by_a_larger_one(
    schedule: LaneSchedule,
) -> None:
    most = schedule.records
    batch(schedule, done(read=most, left=10 * most), took_s=0.1)
    assert schedule.rest_s(END + 200) <= 0
    assert schedule.records > most


def test_what_was_emitted_before_is_followed_at_once(schedule: LaneSchedule) -> None:
    batch(schedule, done(), took_s=0.1)
    schedule.begins(20.0)
    schedule.repeated(20.5, {})
    assert schedule.rest_s(END + 200) <= 0
    assert schedule.behind.seconds(21.0) == 0


def test_a_query_that_is_isolated_leaves_the_others_the_machine_for_as_long_as_it_had_it(
    schedule: LaneSchedule,
) -> None:
    batch(schedule, done(), took_s=3.0, is_isolated=True)
    assert schedule.rest_s(END + 3_100) == pytest.approx(3.0)


def test_a_clock_that_is_set_back_lets_no_lane_rest_for_longer_than_ever(
    schedule: LaneSchedule,
) -> None:
    batch(schedule, done(), took_s=0.1)
    assert schedule.rest_s(END - 3_600_000) == 5.0


def test_a_lane_whose_batch_did_not_fit_keeps_to_fewer_records(schedule: LaneSchedule) -> None:
    assert not schedule.limit_to(CONFIG.batch_records_max)
    assert schedule.limit_to(32)
    batch(schedule, done(read=32, left=1_000), took_s=0.01)
    assert schedule.records == 32


def test_a_lane_that_leaves_more_and_more_unread_is_behind_since_its_first_such_batch(
    schedule: LaneSchedule,
) -> None:
    most = schedule.records
    batch(schedule, done(read=most, left=10 * most), took_s=2.0)
    assert schedule.behind.seconds(15.0) == pytest.approx(5.0)
