"""What a lane's batches teach of its polls: a calm stream's, not a busy one's. Pure."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.aggregate_job import AggregateJob
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.schedule.schedule import (
    BUSY_PER_S,
    COLD_BATCHES,
    DELAY_MS_MIN,
    PROBATION_POLLS,
    SECOND_POLL_MS,
)
from edgewake.cloud.analysis.schedule.schedule_feedback import PollTimes
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.protocol.frames.stream import Stream
from tests.analysis.support import registered, sql

END = 1_790_000_040_000
WINDOW_MS = 5_000


@pytest.fixture
def polls() -> PollTimes:
    config = AnalysisConfig(
        kafka=KafkaConfig(bootstrap="127.0.0.1:9092"), trigger_ms=1_000, calm_trigger_ms=5_000
    )
    queries = registered(
        sql("s", "device, count(*) AS n", "window(event_time, '5 seconds'), device"),
        streams=[Stream(name="s")],
    )
    return PollTimes(config, AggregateJob(LaneKind.PLAIN, ("s",), (), tuple(queries)))


def polled(polls: PollTimes, at_ms: int, oldest_ms: int, *, rate: float = 1.0) -> int:
    """When the next batch begins after one at `at_ms`; both in ms after END."""
    observed = Observed(
        frames=1, readings=1, oldest=END + oldest_ms, flagged=0, tops={}, received_at={}
    )
    next_ms = polls.next_ms(END + at_ms, observed, rate=rate, left=0, batches=COLD_BATCHES)
    return next_ms - END


def first_polls(
    polls: PollTimes, *, late: bool, rate: float = 1.0, is_cut_off: bool = False
) -> int:
    """How long after an end it is polled, after ten ends whose second polls found readings of the
    window that had ended, or none.
    """
    next_ms = 0
    for i in range(1, 11):
        end = i * WINDOW_MS
        polled(polls, end + DELAY_MS_MIN, end - 900, rate=rate)
        if is_cut_off:
            polls.forget()
        second = end + DELAY_MS_MIN + SECOND_POLL_MS
        polled(polls, second, end - 1 if late else end + 1, rate=rate)
        next_ms = polled(polls, end + WINDOW_MS - 500, end + 4_000, rate=rate)
    return next_ms % WINDOW_MS


def test_a_calm_stream_whose_readings_take_longer_is_polled_later(polls: PollTimes) -> None:
    assert first_polls(polls, late=True) > DELAY_MS_MIN


def test_a_busy_stream_is_polled_at_the_same_times_whatever_was_late(polls: PollTimes) -> None:
    """Control: the calm stream above."""
    assert first_polls(polls, late=True, rate=BUSY_PER_S) == DELAY_MS_MIN
    assert polled(polls, DELAY_MS_MIN + 10, -900, rate=BUSY_PER_S) == DELAY_MS_MIN + SECOND_POLL_MS


def test_after_a_batch_that_was_cut_off_nothing_is_late(polls: PollTimes) -> None:
    assert first_polls(polls, late=True, is_cut_off=True) == DELAY_MS_MIN


def test_a_calm_stream_in_which_nothing_is_late_has_one_poll_for_an_end(polls: PollTimes) -> None:
    for i in range(1, PROBATION_POLLS + 2):
        end = i * WINDOW_MS
        polled(polls, end + DELAY_MS_MIN, end - 900)
        polled(polls, end + DELAY_MS_MIN + 10, end + 1)
    end += WINDOW_MS
    assert polled(polls, end + DELAY_MS_MIN, end - 900) == end + WINDOW_MS + DELAY_MS_MIN
