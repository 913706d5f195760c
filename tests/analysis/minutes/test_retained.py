"""From where on a stream's minutes are surely kept."""

from __future__ import annotations

from edgewake.cloud.analysis.minutes.retained import DAYS, noted, oldest
from edgewake.cloud.summaries.summary import DAY_MS, KEPT_MS, Step

NOW = 20_700 * DAY_MS + 5


def after(days: int, *, top_of: dict[int, int]) -> dict[Step, int]:
    """What holds on a day; `top_of`: day → event time at its end, for days on which the stream was
    summed up.
    """
    known: dict[int, int | None] = {}
    top = None
    for day in range(days + 1):
        if day in top_of:
            known = noted(known, top, NOW + day * DAY_MS)
            top = top_of[day]
    return oldest(noted(known, top, NOW + days * DAY_MS), top, NOW + days * DAY_MS)


def test_a_stream_that_began_takes_all_minutes_and_a_live_one_those_of_a_week() -> None:
    live = {day: NOW + (day + 1) * DAY_MS - 10 for day in range(100)}
    assert after(3, top_of=live)[Step.MINUTE] == 0
    of_minutes = after(50, top_of=live)[Step.MINUTE]
    assert of_minutes == live[50 - DAYS]
    assert NOW + 50 * DAY_MS - KEPT_MS[Step.MINUTE] < of_minutes, (
        "those minutes were written within the time for which they are kept"
    )


def test_of_a_recording_the_minutes_are_as_young_as_their_writing() -> None:
    years_ago = NOW - 5000 * DAY_MS
    assert after(0, top_of={}) == dict.fromkeys(Step, 0), "nothing of it is known yet"
    assert after(2, top_of={0: years_ago, 1: years_ago + 900 * DAY_MS})[Step.MINUTE] == 0
    later = after(30, top_of={day: years_ago + day * 100 * DAY_MS for day in range(31)})
    assert later[Step.MINUTE] == years_ago + (30 - DAYS) * 100 * DAY_MS
    assert later[Step.HOUR] == years_ago + 3000 * DAY_MS - KEPT_MS[Step.HOUR]


def test_after_weeks_of_silence_nothing_before_them_is_kept_as_minutes() -> None:
    silent = {0: NOW - 2 * DAY_MS, 1: NOW}
    assert after(30, top_of=silent)[Step.MINUTE] == NOW


def test_a_clock_that_is_years_ahead_makes_nothing_too_late() -> None:
    ahead = after(1, top_of={0: NOW + 9000 * DAY_MS})
    assert ahead[Step.DAY] < NOW - 3000 * DAY_MS
    later = after(30, top_of=dict.fromkeys(range(30), NOW + 9000 * DAY_MS))
    assert later[Step.MINUTE] == NOW + (31 - DAYS) * DAY_MS
