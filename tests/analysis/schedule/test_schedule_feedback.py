"""What a lane's batches teach of its polls: a calm stream's, not a busy one's. Pure."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.aggregate_job import QueryJob
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.analysis.schedule.schedule import (
    BUSY_PER_S,
    COLD_BATCHES,
    DOUBTED_LOOKS,
    SECOND_LOOK_MS,
    SETTLE_MS,
)
from edgewake.cloud.analysis.schedule.schedule_feedback import Looks
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.protocol.frames.stream import Stream
from tests.analysis.support import registered, sql

END = 1_790_000_040_000
WINDOW_MS = 5_000


@pytest.fixture
def looks() -> Looks:
    config = AnalysisConfig(
        kafka=KafkaConfig(bootstrap="127.0.0.1:9092"), trigger_ms=1_000, calm_trigger_ms=5_000
    )
    queries = registered(
        sql("s", "device, count(*) AS n", "window(event_time, '5 seconds'), device"),
        streams=[Stream(name="s")],
    )
    return Looks(config, QueryJob(LaneKind.PLAIN, ("s",), (), tuple(queries)))


def polled(looks: Looks, at_ms: int, oldest_ms: int, *, rate: float = 1.0) -> int:
    """When the next batch begins after one at `at_ms`; both in ms after END."""
    observed = Observed(
        frames=1, readings=1, oldest=END + oldest_ms, flagged=0, tops={}, received_at={}
    )
    next_ms = looks.next_ms(END + at_ms, observed, rate=rate, left=0, batches=COLD_BATCHES)
    return next_ms - END


def first_polls(looks: Looks, *, late: bool, rate: float = 1.0, is_cut_off: bool = False) -> int:
    """How long after an end it is polled, after ten ends whose second polls found readings of the
    window that had ended, or none.
    """
    next_ms = 0
    for i in range(1, 11):
        end = i * WINDOW_MS
        polled(looks, end + SETTLE_MS, end - 900, rate=rate)
        if is_cut_off:
            looks.forget()
        second = end + SETTLE_MS + SECOND_LOOK_MS
        polled(looks, second, end - 1 if late else end + 1, rate=rate)
        next_ms = polled(looks, end + WINDOW_MS - 500, end + 4_000, rate=rate)
    return next_ms % WINDOW_MS


def test_a_calm_stream_whose_readings_take_longer_is_polled_later(looks: Looks) -> None:
    assert first_polls(looks, late=True) > SETTLE_MS


def test_a_busy_stream_is_polled_at_the_same_times_whatever_was_late(looks: Looks) -> None:
    """Control: the calm stream above."""
    assert first_polls(looks, late=True, rate=BUSY_PER_S) == SETTLE_MS
    assert polled(looks, SETTLE_MS + 10, -900, rate=BUSY_PER_S) == SETTLE_MS + SECOND_LOOK_MS


def test_after_a_batch_that_was_cut_off_nothing_is_late(looks: Looks) -> None:
    assert first_polls(looks, late=True, is_cut_off=True) == SETTLE_MS


def test_a_calm_stream_in_which_nothing_is_late_has_one_poll_for_an_end(looks: Looks) -> None:
    for i in range(1, DOUBTED_LOOKS + 2):
        end = i * WINDOW_MS
        polled(looks, end + SETTLE_MS, end - 900)
        polled(looks, end + SETTLE_MS + 10, end + 1)
    end += WINDOW_MS
    assert polled(looks, end + SETTLE_MS, end - 900) == end + WINDOW_MS + SETTLE_MS
