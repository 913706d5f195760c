from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.push.wake_policy import COUNT_MAX, JITTER, RETRY_AFTER_MAX_S, RETRY_DELAYS_S, Waiting, retry_delay_s, wake_due_at
from edgewake.protocol.lease import WakePolicy

NOW = 1_790_000_000_000


def due(policy: WakePolicy, waiting: Waiting, last_wake_at: int | None = None) -> int | None:
    return wake_due_at(policy, waiting, last_wake_at=last_wake_at, now=NOW)


def test_nothing_waits_nobody_is_woken() -> None:
    assert due(WakePolicy(), Waiting()) is None


def test_the_first_event_wakes_at_once_by_default() -> None:
    assert due(WakePolicy(), Waiting(1, NOW)) == NOW


def test_too_few_events_wait_for_more() -> None:
    assert due(WakePolicy(min_events=3), Waiting(2, NOW)) is None


def test_few_events_wake_when_the_oldest_waited_long_enough() -> None:
    assert due(WakePolicy(min_events=3, max_wait_s=60), Waiting(1, NOW - 20_000)) == NOW + 40_000


def test_two_wake_ups_are_the_least_interval_apart() -> None:
    assert due(WakePolicy(min_interval_s=30), Waiting(1, NOW), last_wake_at=NOW - 10_000) == NOW + 20_000


def test_a_gap_wakes_like_enough_events() -> None:
    assert due(WakePolicy(min_events=100), Waiting(0, None, gap=True)) == NOW


def test_a_clock_that_was_set_back_silences_nobody() -> None:
    assert due(WakePolicy(min_interval_s=30), Waiting(1, NOW), last_wake_at=NOW + 3_600_000) == NOW


def test_more_events_than_are_counted_are_enough_for_any_policy() -> None:
    assert due(WakePolicy(min_events=10_000), Waiting(COUNT_MAX, NOW)) == NOW


@given(st.builds(WakePolicy, min_events=st.integers(1, 10_000), max_wait_s=st.floats(0, 86_400), min_interval_s=st.floats(0, 86_400)))
def test_a_wake_up_is_never_due_in_the_past(policy: WakePolicy) -> None:
    at = due(policy, Waiting(5, NOW - 100_000), last_wake_at=NOW - 50_000)
    assert at is None or at >= NOW


def test_an_endpoint_is_tried_nine_times_over_more_than_a_day() -> None:
    waits = [retry_delay_s(n, retry_after_s=None, rng=random.Random(n)) for n in range(1, 20)]
    tries = waits.index(None) + 1
    assert tries == 9
    assert sum(waits[: tries - 1]) > 24 * 3600


@given(st.integers(1, len(RETRY_DELAYS_S)), st.integers(0, 2**32))
def test_a_wait_is_jittered_upwards_within_its_bound(failures: int, seed: int) -> None:
    wait = retry_delay_s(failures, retry_after_s=None, rng=random.Random(seed))
    base = RETRY_DELAYS_S[failures - 1]
    assert base <= wait <= base * (1 + JITTER)


@given(st.floats(0, 86_400), st.integers(0, 2**32))
def test_retry_after_is_kept_and_never_undercut(asked_s: float, seed: int) -> None:
    assert asked_s <= retry_delay_s(1, retry_after_s=asked_s, rng=random.Random(seed)) <= asked_s * 1.1


def test_an_absurd_retry_after_is_bounded_by_a_day() -> None:
    assert retry_delay_s(1, retry_after_s=1e9, rng=random.Random(1)) <= RETRY_AFTER_MAX_S * 1.1
