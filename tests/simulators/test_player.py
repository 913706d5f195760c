"""Recorded times are played."""

from __future__ import annotations

from edgewake.simulators.recordings.readings import (
    Pace,
    Reading,
    sorted_by_time,
)  # fmt: skip
from edgewake.simulators.recordings.rows import (
    BadRow,
)


def test_sorting_keeps_the_order_of_equal_times():
    readings = [
        Reading("a", 2, {"i": 0}),
        BadRow(2, "x"),
        Reading("a", 1, {"i": 1}),
        Reading("b", 1, {"i": 2}),
    ]
    assert list(sorted_by_time(readings)) == [readings[1], readings[2], readings[3], readings[0]]


def test_distances_are_kept_and_scaled_when_times_move_to_now():
    pace = Pace(speed=10.0, move_to_now=True, start_ms=1_000_000)
    assert [pace.offset_s(t) for t in (50_000, 60_000, 40_000)] == [0.0, 1.0, 0.0]
    assert [pace.event_time(t, now_ms=0) for t in (50_000, 60_000)] == [1_000_000, 1_001_000]


def test_recorded_times_stay_and_full_speed_does_not_wait():
    assert Pace(speed=1.0, move_to_now=False, start_ms=5).event_time(77, now_ms=9) == 77
    pace = Pace(speed=None, move_to_now=True, start_ms=5)
    assert (pace.offset_s(50), pace.event_time(50, now_ms=9)) == (0.0, 9)
