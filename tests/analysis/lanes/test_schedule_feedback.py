"""What a lane's batches tell of its looks: how many rows of the windows that ended a look missed.

Pure.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.jobs.aggregate_job import QueryJob
from edgewake.cloud.analysis.lanes.schedule import (
    BUSY_PER_S,
    COLD_BATCHES,
    LATE_GAIN_MS,
    LATE_SHARE,
    SECOND_LOOK_MS,
    SETTLE_MS,
)
from edgewake.cloud.analysis.lanes.schedule_feedback import Looks
from edgewake.cloud.analysis.plan.observed import Observed
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.protocol.stream import Stream
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


def rows(*ended: int, open_rows: int = 0) -> pa.Table:
    """Rows of windows with these ends, and of the window that is open."""
    ends = [*ended, *[END + WINDOW_MS] * open_rows]
    return pa.table({"window_end": pa.array(ends, pa.int64())})


def observed(oldest: int) -> Observed:
    return Observed(
        frames=1, readings=BUSY_PER_S, oldest=oldest, flagged=0, tops={}, received_at={}
    )


def moved_ms(
    looks: Looks, second: pa.Table, *, rate: float = BUSY_PER_S, is_cut_off: bool = False
) -> float:
    """How much later the next end is looked at, after a first look at one with forty rows and a
    second one.
    """
    looks.next_ms(
        END + SETTLE_MS,
        rows(*[END] * 40, open_rows=3),
        observed(END - 900),
        rate=rate,
        left=0,
        batches=COLD_BATCHES,
    )
    if is_cut_off:
        looks.forget()
    at_ms = END + SETTLE_MS + SECOND_LOOK_MS
    looks.next_ms(at_ms, second, observed(END - 1), rate=rate, left=0, batches=COLD_BATCHES + 1)
    next_ms = looks.next_ms(
        END + 2_000,
        rows(open_rows=40),
        observed(END + 2_000),
        rate=rate,
        left=0,
        batches=COLD_BATCHES + 2,
    )
    return next_ms - END - SETTLE_MS - (WINDOW_MS if next_ms > END + WINDOW_MS else 2_000)


@pytest.mark.parametrize("late", [20, 40])
def test_a_busy_stream_s_next_first_look_is_later_by_how_many_rows_the_last_one_missed(
    looks: Looks, late: int
) -> None:
    assert moved_ms(looks, rows(*[END] * late, open_rows=40)) == LATE_GAIN_MS * (
        late / 40 - LATE_SHARE
    )


@pytest.mark.parametrize("late", [0, 1, 10])
def test_few_that_were_late_do_not_move_it(looks: Looks, late: int) -> None:
    assert moved_ms(looks, rows(*[END] * late, open_rows=40)) == 0


def test_rows_of_older_windows_do_not_count_for_a_device_brings_them_that_was_away(
    looks: Looks,
) -> None:
    assert moved_ms(looks, rows(*[END - WINDOW_MS] * 40, open_rows=40)) == 0


def test_after_a_batch_that_was_cut_off_nothing_is_late(looks: Looks) -> None:
    """Control: the same rows after one that was not (above)."""
    assert moved_ms(looks, rows(*[END] * 40, open_rows=40), is_cut_off=True) == 0


def test_rows_without_windows_tell_nothing(looks: Looks) -> None:
    assert moved_ms(looks, pa.table({"key": pa.array([], pa.string())})) == 0
