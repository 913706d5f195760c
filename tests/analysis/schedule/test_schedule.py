"""When the next batch begins: soon after windows end, seldom between, and at full pace where there
is much to do.
"""

from __future__ import annotations

import threading

import pytest

from edgewake.cloud.analysis.checkpoints.checkpoint import is_done
from edgewake.cloud.analysis.lanes.lane import Lane
from edgewake.cloud.analysis.schedule.schedule import (
    COLD_BATCHES,
    DELAY_MS_MAX,
    DELAY_MS_MIN,
    NEW_MS,
    PROBATION_POLLS,
    SECOND_POLL_MS,
    SUMMARY_DELAY_MS,
    ArrivalDelay,
    asks_ms,
    has_second_polls,
    is_busy,
    is_new,
    next_ms,
    next_summary_ms,
    updated_delay,
)
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from edgewake.cloud.queries.terms.windows import Window
from edgewake.protocol.clock import SystemClock
from tests.analysis.support import Analysis, Feed, catch_up, registered, results, sql
from tests.services import wait_until

END = 1_790_000_040_000
"""Of a minute, and of all shorter windows."""
MINUTE = 60_000
HOUR_END = END - END % 3_600_000
UNKNOWN_DELAY = ArrivalDelay()


class StandingClock(SystemClock):
    """It is always the same time of day."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def calm_lane(analysis: Analysis, feed: Feed, *, now_ms: int, registered_at: int = 1) -> Lane:
    """With one reading to compute; half an hour from one batch to the next, where no window
    ends.
    """
    text = sql(feed.name, "device, count(*) AS n", "window(event_time, '1 hour'), device")
    (query,) = registered(text, streams=[feed.stream], at=registered_at)
    lane = analysis.with_config(trigger_ms=1_000, calm_trigger_ms=3_600_000).lane(
        [query], [feed.stream]
    )
    lane.clock = StandingClock(now_ms)
    feed.send([END], speed=[1.0])
    return lane


def each(slide_ms: int) -> Window:
    return Window(size_ms=slide_ms, slide_ms=slide_ms)


def begins(
    *slides_ms: int,
    until_s: float,
    began_ms: int = END + DELAY_MS_MIN,
    busy: bool = False,
    calm_ms: int = 5_000,
    least_ms: int = 1_000,
    delay: ArrivalDelay = UNKNOWN_DELAY,
) -> list[float]:
    """Seconds from END to the begin of each batch, where a batch begins 10 ms after its time."""
    found = []
    while began_ms < END + until_s * 1000:
        found.append((began_ms - END) / 1000)
        began_ms = next_ms(
            began_ms + 10,
            [each(slide_ms) for slide_ms in slides_ms],
            least_ms=least_ms,
            calm_ms=calm_ms,
            busy=busy,
            delay=delay,
        )
    return found


def test_a_calm_stream_has_two_batches_after_a_window_s_end_and_one_before_the_next() -> None:
    assert begins(10_000, until_s=20) == [0.08, 0.38, 5.39, 10.08, 10.38, 15.39]


@pytest.mark.parametrize(
    ("began", "oldest", "then"),
    [(0.09, -1, 0.38), (0.39, -1, 1.39), (5.5, -1, 6.5), (9.5, -1, 10.08), (0.39, 0, 5.39)],
)
def test_while_readings_of_windows_that_ended_come_there_is_a_batch_each_second(
    began: float, oldest: int, then: float
) -> None:
    began_ms = END + round(began * 1000)
    assert next_ms(
        began_ms, [each(10_000)], least_ms=1_000, calm_ms=5_000, oldest_ms=END + oldest
    ) == END + round(then * 1000)


def test_a_long_window_is_told_every_calm_interval() -> None:
    assert begins(MINUTE, until_s=20) == [0.08, 0.38, 5.39, 10.4, 15.41]


def test_a_batch_that_would_come_just_before_a_window_s_end_is_left_to_that() -> None:
    assert begins(MINUTE, began_ms=END + 54_500, until_s=60.3) == [54.5, 60.08]


def test_windows_of_several_lengths_are_all_told_at_their_ends() -> None:
    assert {10.08, 15.08, 20.08, 30.08} <= set(begins(10_000, 15_000, MINUTE, until_s=31))


def test_windows_that_do_not_begin_with_the_minute_and_days_of_a_zone_are_told_at_their_ends() -> (
    None
):
    shifted = Window(size_ms=MINUTE, slide_ms=MINUTE, offset_ms=7_000)
    assert (
        next_ms(END + 6_500, [shifted], least_ms=1_000, calm_ms=5_000) == END + 7_000 + DELAY_MS_MIN
    )
    midnight = 1_790_028_000_000  # in Berlin, 22:00 UTC
    day = Window(size_ms=25 * 3_600_000, slide_ms=25 * 3_600_000, unit="day", zone="Europe/Berlin")
    assert (
        next_ms(midnight - 4_000, [day], least_ms=1_000, calm_ms=5_000) == midnight + DELAY_MS_MIN
    )


def polls(delay_ms: int, windows: int = 60, *, calm_ms: int = 5_000) -> list[list[int]]:
    """Of a stream whose readings all come `delay_ms` after their event time: for each window of 10
    s the ms from its end to each batch that begins before the next window ends.
    """
    delay, before, began = ArrivalDelay(), END - 5_000, END + DELAY_MS_MIN
    found: list[list[int]] = [[] for _ in range(windows)]
    while (i := (began - END) // 10_000) < windows:
        found[i].append((began - END) % 10_000)
        oldest = before - delay_ms + 1
        delay = updated_delay(delay, [each(10_000)], before_ms=before, oldest_ms=oldest)
        before = began
        began = next_ms(
            began, [each(10_000)], least_ms=1_000, calm_ms=calm_ms, oldest_ms=oldest, delay=delay
        )
    return found


@pytest.mark.parametrize(("calm_ms", "batches"), [(5_000, 2), (10_000, 1)])
@pytest.mark.parametrize("delay_ms", [20, 140, DELAY_MS_MAX])
def test_one_batch_is_enough_for_an_end_once_it_is_known_how_late_readings_come(
    delay_ms: int, calm_ms: int, batches: int
) -> None:
    found = polls(delay_ms, calm_ms=calm_ms)
    assert len(found[0]) > batches, "nothing was known yet"
    assert sum(map(len, found)) <= batches * len(found) + 20, (
        "one for the end, at most one for what is open, and now and then a try"
    )
    told = [next(at for at in of_window if at >= delay_ms) for of_window in found]
    assert sum(at <= DELAY_MS_MAX for at in told) >= 0.85 * len(told)
    assert max(told) <= 2_000, "nobody waits for the batch in the middle"


@pytest.mark.parametrize("delay_ms", [DELAY_MS_MAX + 20, 350, DELAY_MS_MIN + SECOND_POLL_MS])
def test_no_stream_makes_the_first_look_late_and_what_is_later_has_its_second_look_within_a_second(
    delay_ms: int,
) -> None:
    """Control: there is a second poll at each end, which is what finds them."""
    found = polls(delay_ms, calm_ms=10_000)
    assert max(of_window[0] for of_window in found) == DELAY_MS_MAX
    told = [next(at for at in of_window if at >= delay_ms) for of_window in found[1:]]
    assert max(told) <= DELAY_MS_MAX + SECOND_POLL_MS
    assert min(map(len, found)) >= 2


def test_what_was_late_once_is_left_to_second_looks_and_the_first_is_as_soon_as_before() -> None:
    """Control: late twice in a row it is no accident, and the first poll waits for it."""

    def after(*late: bool) -> ArrivalDelay:
        delay = ArrivalDelay(is_enough=True)
        for i, is_late in enumerate(late):
            first = END + i * 10_000 + DELAY_MS_MIN + 10
            delay = updated_delay(
                delay,
                [each(10_000)],
                before_ms=first,
                oldest_ms=END + i * 10_000 + (-1 if is_late else 0),
            )
        return delay

    assert after(True) == ArrivalDelay(probation=PROBATION_POLLS)
    assert after(True, *[False] * (PROBATION_POLLS - 1)) == ArrivalDelay(probation=1)
    assert after(True, *[False] * PROBATION_POLLS) == ArrivalDelay(is_enough=True)
    assert after(True, *[False] * PROBATION_POLLS, True).ms == DELAY_MS_MIN
    assert after(True, False, True) == ArrivalDelay(2 * DELAY_MS_MIN)


def test_what_came_later_than_any_first_look_may_be_does_not_delay_the_others() -> None:
    """Control: what came a little earlier does."""

    def twice(polled_ms: int) -> ArrivalDelay:
        delay = ArrivalDelay(is_enough=True)
        for i in range(2):
            end = END + i * 10_000
            delay = updated_delay(
                delay, [each(10_000)], before_ms=end + polled_ms, oldest_ms=end - 1
            )
        return delay

    assert twice(DELAY_MS_MAX + 1) == ArrivalDelay()
    assert twice(DELAY_MS_MAX) == ArrivalDelay(DELAY_MS_MAX)


def test_the_first_batches_of_a_lane_do_not_make_its_first_look_later() -> None:
    """Control: two late readings in a row do, when it is warm."""

    def after(batches: int) -> ArrivalDelay:
        delay = ArrivalDelay()
        for i in range(2):
            end = END + i * 10_000
            delay = updated_delay(
                delay,
                [each(10_000)],
                before_ms=end + DELAY_MS_MIN,
                oldest_ms=end - 1,
                batches=batches + i,
            )
        return delay

    assert after(COLD_BATCHES - 2) == ArrivalDelay()
    assert after(COLD_BATCHES) == ArrivalDelay(2 * DELAY_MS_MIN)


def test_what_is_learned_halves_the_batches_of_a_calm_stream_of_short_windows() -> None:
    """The figure of docs/decisions.md: what fixed polls would cost."""
    enough = ArrivalDelay(is_enough=True)
    fixed = begins(10_000, until_s=120, calm_ms=10_000)
    learned = begins(10_000, until_s=120, calm_ms=10_000, delay=enough)
    assert (len(fixed), len(learned)) == (24, 12)
    ends = {round(end + 0.08, 2) for end in range(0, 120, 10)}
    assert ends == set(learned)
    assert ends <= set(fixed), "results come no later"


def test_windows_that_end_with_nearly_every_batch_need_no_second_look() -> None:
    assert has_second_polls([each(2_000), each(10_000)], 1_000)
    assert not has_second_polls([each(1_000), each(10_000)], 1_000)
    assert not has_second_polls([], 1_000)


def test_a_busy_stream_has_no_second_look_where_one_is_enough() -> None:
    poll = END + DELAY_MS_MIN + 10
    assert (
        next_ms(
            poll,
            [each(10_000)],
            least_ms=1_000,
            calm_ms=5_000,
            busy=True,
            delay=ArrivalDelay(is_enough=True),
        )
        == END + 1_080
    )


def test_readings_that_are_later_than_any_first_look_still_get_a_batch_each_second() -> None:
    assert {len(of_window) for of_window in polls(1_200)[5:]} == {5}


def test_a_slow_stream_that_becomes_fast_is_told_sooner_in_the_end() -> None:
    delay = ArrivalDelay(DELAY_MS_MAX)
    for i in range(200):
        first = END + i * 10_000 + delay.ms + 20
        delay = updated_delay(delay, [each(10_000)], before_ms=first, oldest_ms=first - 100)
    assert delay.ms == DELAY_MS_MIN


def test_a_look_tells_nothing_where_no_window_ends_or_none_was_looked_at_before() -> None:
    assert updated_delay(ArrivalDelay(), [], before_ms=END, oldest_ms=END - 1) == ArrivalDelay()
    assert (
        updated_delay(
            ArrivalDelay(), [each(10_000)], before_ms=END + DELAY_MS_MIN - 1, oldest_ms=END - 1
        )
        == ArrivalDelay()
    )
    assert (
        updated_delay(ArrivalDelay(), [each(10_000)], before_ms=None, oldest_ms=END - 1)
        == ArrivalDelay()
    )


def test_windows_that_end_as_often_as_batches_are_made_have_one_each() -> None:
    assert begins(1_000, until_s=4) == [0.08, 1.08, 2.08, 3.08]


@pytest.mark.parametrize(("calm_ms", "busy"), [(5_000, True), (0, False), (1_000, False)])
def test_busy_and_fresh_streams_have_a_batch_each_second_and_two_after_an_end(
    calm_ms: int, busy: bool
) -> None:
    assert begins(MINUTE, until_s=3, began_ms=END + 20, calm_ms=calm_ms, busy=busy) == [
        0.02,
        0.08,
        0.38,
        1.08,
        2.08,
    ]


def test_a_busy_stream_s_last_batch_before_an_end_is_near_it_to_leave_less_to_compute() -> None:
    assert begins(5_000, until_s=6, busy=True) == [0.08, 0.38, 1.08, 2.08, 3.08, 4.48, 5.08, 5.38]
    assert begins(5_000, MINUTE, until_s=6, busy=True) == begins(5_000, until_s=6, busy=True)
    assert begins(2_000, until_s=5, busy=True) == [0.08, 0.38, 1.48, 2.08, 2.38, 3.48, 4.08, 4.38]
    assert begins(5_000, until_s=6, busy=True, began_ms=END + 4_600)[:2] == [4.6, 5.08], (
        "a slow batch before it does not delay the poll"
    )
    assert begins(1_000, until_s=2, busy=True) == [0.08, 1.08], "each step is the poll at an end"


@pytest.mark.parametrize("slide_ms", [1_000, 2_000, 10_000, MINUTE])
@pytest.mark.parametrize("before_ms", [1, DELAY_MS_MIN - 1, 999])
def test_a_batch_that_begins_just_before_an_end_is_followed_by_the_look_at_it(
    slide_ms: int, before_ms: int
) -> None:
    assert (
        next_ms(END - before_ms, [each(slide_ms)], least_ms=1_000, calm_ms=5_000)
        == END + DELAY_MS_MIN
    )


def test_minutes_are_summed_up_when_their_results_are_told_and_those_of_five_seconds_are_too() -> (
    None
):
    assert next_summary_ms(END - 20_000, MINUTE) == END + 6_000
    assert next_summary_ms(END + 6_010, MINUTE) == END + MINUTE + 6_000
    for slide_ms in (5_000, 10_000, 15_000, 30_000, MINUTE):
        since_ms = END + SUMMARY_DELAY_MS - each(slide_ms).over(END + SUMMARY_DELAY_MS)
        assert DELAY_MS_MAX + SECOND_POLL_MS < since_ms <= slide_ms - 4_000
    assert next_summary_ms(END, 0) == END


@pytest.mark.parametrize(
    ("values", "in_s", "step_s"),
    [
        (0, 60, 60),
        (200_000, 60, 60),
        (200_001, 60, 30),
        (400_000, 60, 30),
        (200_000, 20, 20),
        (200_000, 1, 10),
    ],
)
def test_a_minute_of_many_values_is_summed_up_in_pieces_that_begin_as_long_after_ends(
    values: int, in_s: int, step_s: int
) -> None:
    began_ms = END + SUMMARY_DELAY_MS
    found = next_summary_ms(began_ms, MINUTE, values=values, in_ms=in_s * 1000)
    assert found == began_ms + step_s * 1000


def test_pieces_are_no_longer_than_the_interval_and_a_clock_that_was_set_back_changes_nothing() -> (
    None
):
    assert next_summary_ms(END, 5_000, values=10**9, in_ms=5_000) == END + 1_000
    assert next_summary_ms(END, 25_000, values=10**9, in_ms=25_000) - END <= 10_000
    assert next_summary_ms(END, MINUTE, values=0, in_ms=-60_000) == END + 6_000
    assert next_summary_ms(END, 0, values=10**9) == END


@pytest.mark.parametrize("delay_ms", [DELAY_MS_MIN, 120, DELAY_MS_MAX])
def test_spark_asks_in_time_for_a_second_look(delay_ms: int) -> None:
    """Control: with half a second from one question to the next, one would wait for up to 200
    ms.
    """

    def waits_ms(step_ms: int) -> int:
        found = []
        for end in range(END, END + MINUTE, 5_000):
            first, second = end + delay_ms, end + delay_ms + SECOND_POLL_MS
            # As Spark's ProcessingTimeExecutor does.
            found.append(max(0, first - first % step_ms + step_ms - second))
        return max(found)

    assert waits_ms(asks_ms(1_000)) <= 100
    assert delay_ms > 120 or waits_ms(500) >= 80


def test_without_a_least_time_there_is_no_rest() -> None:
    assert next_ms(END, [each(MINUTE)], least_ms=0, calm_ms=5_000, busy=False) == END


@pytest.mark.parametrize(
    ("rate", "read", "left", "busy"),
    [
        (1, 1, 4, False),
        (10, 10, None, False),
        (30, 150, 140, False),
        (30, 150, 160, True),
        (1_000, 5_000, 0, True),
    ],
)
def test_many_readings_and_a_backlog_make_a_stream_busy(
    rate: float, read: int, left: int | None, busy: bool
) -> None:
    assert is_busy(rate, read=read, left=left) is busy


def test_a_stop_ends_the_rest_and_spark_notes_the_batch_before_it(
    analysis: Analysis, feed: Feed
) -> None:
    lane = calm_lane(analysis, feed, now_ms=HOUR_END - 1_800_000)
    lane.start()
    stop = threading.Thread(target=lane.stop, daemon=True)
    try:
        catch_up(lane, feed)
        assert not is_done(lane.checkpoint, 0)
    finally:
        stop.start()

    wait_until(lambda: not stop.is_alive(), "the stop")
    assert is_done(lane.checkpoint, 0)


def told_of_one_more(lane: Lane, feed: Feed) -> list[int]:
    """The counts that a lane tells of one window: it catches up, one more reading comes, a second
    batch is done.
    """
    lane.start()
    try:
        catch_up(lane, feed)
        feed.send([END + 1], speed=[1.0])
        wait_until(lambda: lane.counters.batches == 2, "the second batch")
    finally:
        lane.stop()
    return [row["n"] for row in results(feed.config, lane.job.queries[0].query.name)]


@pytest.mark.long
def test_a_calm_stream_s_window_is_told_when_it_ends(analysis: Analysis, feed: Feed) -> None:
    """The rest would be half an hour otherwise: a second before the hour's end it is until that."""
    lane = calm_lane(analysis, feed, now_ms=HOUR_END - 1_000)
    assert told_of_one_more(lane, feed) == [1, 2]


def test_a_query_is_new_for_a_while_and_not_before_its_time() -> None:
    text = sql("s", "count(*) AS n", "window(event_time, '1 hour')")
    queries = [Registered(parse(text), at) for at in (1, END)]
    assert [is_new(queries, END + after_ms) for after_ms in (-1, 0, NEW_MS - 1, NEW_MS)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.long
def test_a_calm_stream_s_new_query_has_rows_at_full_pace(analysis: Analysis, feed: Feed) -> None:
    """Half an hour before a window ends; the control is the lane above that rests until then."""
    lane = calm_lane(
        analysis, feed, now_ms=HOUR_END - 1_800_000, registered_at=HOUR_END - 1_801_000
    )
    assert told_of_one_more(lane, feed) == [1, 2]
