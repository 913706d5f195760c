"""How far event time has come: held by what was not read yet, ended by silence, and never back."""

from __future__ import annotations

import pytest

from edgewake.cloud.analysis.results.event_progress import (
    BEHIND_MS,
    SPARK_STEP_MS,
    behind,
    for_spark,
    held,
    progress,
    progress_in_silence,
)
from edgewake.cloud.queries.query_file import parse

T0 = 1_790_000_040_000
MINUTE = parse(
    "-- name: q\n-- lateness: 30 seconds\nSELECT count(*) AS n FROM s GROUP BY window(event_time, "
    "'1 minute')"
)
HOUR = parse(
    "-- name: h\n-- lateness: 10 minutes\nSELECT count(*) AS n FROM s GROUP BY window(event_time, "
    "'1 hour')"
)


@pytest.mark.parametrize(
    ("before", "tops", "held", "expected"),
    [
        (None, {}, set(), None),
        (None, {0: 5}, set(), 5),
        (None, {0: 5, 1: 9}, set(), 9),
        (None, {0: 5, 1: 9}, {0}, 5),
        (None, {0: 5, 1: 9}, {1}, 9),
        (None, {0: 5, 1: 9}, {0, 1}, 5),
        (7, {0: 5, 1: 9}, {0}, 7),
        (7, {1: 9}, {0, 1}, 7),
        (None, {1: 9}, {0}, None),
    ],
)
def test_the_furthest_back_of_the_partitions_that_are_behind_holds_event_time(
    before: int | None, tops: dict[int, int], held: set[int], expected: int | None
) -> None:
    assert progress(before, tops, held) == expected


def test_behind_is_what_has_unread_records_and_was_read_only_up_to_a_while_ago() -> None:
    received_at = {0: T0 - BEHIND_MS, 1: T0 - BEHIND_MS - 1, 2: T0 - 3_600_000}
    assert behind({0: 5, 1: 5, 2: 0}, received_at, {0, 1, 2}, T0) == {1}
    assert behind({3: 5, 4: 5, 5: 0}, received_at, {4}, T0) == {3}, (
        "of 3 nothing was read yet, 4 brings no readings"
    )


def test_in_silence_event_time_goes_on_with_the_clock_until_the_last_windows_are_final() -> None:
    tops = {0: T0 + 1_000, 1: T0 - 9_000}
    assert progress_in_silence(T0 + 1_000, tops, 5_000, [MINUTE]) == T0 + 6_000
    assert progress_in_silence(T0 + 1_000, tops, 10**9, [MINUTE]) == T0 + 60_000 + 30_000
    hour_end = T0 - T0 % 3_600_000 + 3_600_000
    assert progress_in_silence(T0 + 1_000, tops, 10**9, [MINUTE, HOUR]) == hour_end + 600_000


def test_silence_moves_nothing_back_and_nothing_without_queries() -> None:
    assert progress_in_silence(T0 + 99_000, {0: T0}, 1_000, [MINUTE]) == T0 + 99_000
    assert progress_in_silence(T0, {0: T0}, 10**9, []) == T0


def test_a_stream_that_was_silent_from_its_first_readings_on_is_finished_too() -> None:
    """Something held event time when they came, so that it was never known."""
    assert progress_in_silence(None, {0: T0, 1: T0 + 5_000}, 1_000, [MINUTE]) == T0 + 6_000
    assert (
        progress_in_silence(None, {0: T0, 1: T0 + 5_000}, 10**9, [MINUTE]) == T0 + 60_000 + 30_000
    )
    assert progress_in_silence(None, {0: T0}, 10**9, []) == T0
    assert progress_in_silence(None, {}, 10**9, [MINUTE]) is None


@pytest.mark.parametrize(
    ("before", "reached", "hold", "expected"),
    [
        (5, 9, None, 9),
        (5, 9, 7, 7),
        (5, 9, 12, 9),
        (5, 9, 3, 5),
        (None, 9, 7, None),
        (None, None, 7, None),
        (5, 5, 3, 5),
    ],
)
def test_event_time_passes_no_hold_and_never_goes_back(
    before: int | None, reached: int | None, hold: int | None, expected: int | None
) -> None:
    assert held(before, reached, hold) == expected


def test_spark_is_told_in_steps_and_never_of_more_than_has_come() -> None:
    told = [for_spark(T0 + ms) for ms in range(0, 4 * SPARK_STEP_MS, 700)]
    assert len(set(told)) <= 5
    assert all(T0 + i * 700 - SPARK_STEP_MS < at <= T0 + i * 700 for i, at in enumerate(told))
