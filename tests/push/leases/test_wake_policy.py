from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.push.leases.wake_policy import (
    COUNT_MAX,
    GIVE_UP_AFTER_S,
    GIVE_UP_TRIES_MIN,
    JITTER,
    RETRY_AFTER_MAX_S,
    RETRY_DELAYS_S,
    REWAKE_DELAYS_S,
    Unseen,
    retry_delay_s,
    rewake_at,
    wake_due_at,
)
from edgewake.cloud.quiet_hours import is_quiet
from edgewake.protocol.leases.lease import QuietHours, Urgency, WakePolicy

NOW = 1_790_000_000_000


def due(policy: WakePolicy, waiting: Unseen, last_wake_at: int | None = None) -> int | None:
    return wake_due_at(policy, waiting, last_wake_at=last_wake_at, now=NOW)


def test_nothing_waits_nobody_is_woken() -> None:
    assert due(WakePolicy(), Unseen()) is None


def test_the_first_event_wakes_at_once_by_default() -> None:
    assert due(WakePolicy(), Unseen(1, NOW)) == NOW


def test_too_few_events_wait_for_more() -> None:
    assert due(WakePolicy(min_events=3), Unseen(2, NOW)) is None


def test_few_events_wake_when_the_oldest_waited_long_enough() -> None:
    assert due(WakePolicy(min_events=3, max_wait_s=60), Unseen(1, NOW - 20_000)) == NOW + 40_000


def test_two_wake_ups_are_the_least_interval_apart() -> None:
    assert (
        due(WakePolicy(min_interval_s=30), Unseen(1, NOW), last_wake_at=NOW - 10_000)
        == NOW + 20_000
    )


def test_a_gap_wakes_like_enough_events() -> None:
    assert due(WakePolicy(min_events=100), Unseen(0, None, gap=True)) == NOW


def test_a_clock_that_was_set_back_silences_nobody() -> None:
    assert due(WakePolicy(min_interval_s=30), Unseen(1, NOW), last_wake_at=NOW + 3_600_000) == NOW


def test_more_events_than_are_counted_are_enough_for_any_policy() -> None:
    assert due(WakePolicy(min_events=10_000), Unseen(COUNT_MAX, NOW)) == NOW


@given(
    st.builds(
        WakePolicy,
        min_events=st.integers(1, 10_000),
        max_wait_s=st.floats(0, 86_400),
        min_interval_s=st.floats(0, 86_400),
    )
)
def test_a_wake_up_is_never_due_in_the_past(policy: WakePolicy) -> None:
    at = due(policy, Unseen(5, NOW - 100_000), last_wake_at=NOW - 50_000)
    assert at is None or at >= NOW


def retry(
    failures: int, *, failing_s: float = 0, retry_after_s: float | None = None, seed: int = 1
) -> float | None:
    since = NOW - round(failing_s * 1000)
    return retry_delay_s(
        failures, failing_since=since, now=NOW, retry_after_s=retry_after_s, rng=random.Random(seed)
    )


@given(st.integers(1, 1000), st.floats(0, 30 * 86_400))
def test_an_endpoint_is_given_up_by_time_and_not_by_count(failures: int, failing_s: float) -> None:
    given_up = retry(failures, failing_s=failing_s) is None
    assert given_up == (
        failures >= GIVE_UP_TRIES_MIN and round(failing_s * 1000) >= GIVE_UP_AFTER_S * 1000
    )


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_a_wait_is_jittered_upwards_within_its_bound(failures: int, seed: int) -> None:
    base = RETRY_DELAYS_S[min(failures, len(RETRY_DELAYS_S)) - 1]
    assert base <= retry(failures, seed=seed) <= base * (1 + JITTER)


@given(st.integers(1, 20), st.floats(0, 86_400), st.integers(0, 2**32))
def test_retry_after_lengthens_our_own_wait_and_never_shortens_it(
    failures: int, asked_s: float, seed: int
) -> None:
    own_s = RETRY_DELAYS_S[min(failures, len(RETRY_DELAYS_S)) - 1]
    least = max(own_s, asked_s)
    assert least <= retry(failures, retry_after_s=asked_s, seed=seed) <= least * (1 + JITTER)


def test_an_absurd_retry_after_is_bounded_by_a_day() -> None:
    assert retry(1, retry_after_s=1e9) <= RETRY_AFTER_MAX_S * (1 + JITTER)


# Waking again


def rewake(unanswered: int, *, now: int = NOW, **policy: object) -> int:
    return rewake_at(
        WakePolicy(**policy), unanswered=unanswered, last_wake_at=NOW, now=now, rng=random.Random(1)
    )


@pytest.mark.parametrize("urgency", list(Urgency))
def test_a_client_that_does_not_resume_is_woken_again_less_and_less_often(urgency: Urgency) -> None:
    waits_s = [(rewake(n, urgency=urgency) - NOW) / 1000 for n in range(1, 10)]
    expected = [*REWAKE_DELAYS_S[urgency], *[86_400] * 9][:9]
    assert all(
        base <= wait <= base * (1 + JITTER) for base, wait in zip(expected, waits_s, strict=True)
    )


def test_a_week_without_an_answer_costs_less_than_a_dozen_wake_ups() -> None:
    at, wakes = NOW, 1
    while at - NOW < 7 * 86_400_000:
        at = rewake_at(
            WakePolicy(), unanswered=wakes, last_wake_at=at, now=at, rng=random.Random(wakes)
        )
        wakes += 1
    assert wakes <= 12


@given(st.integers(1, 20), st.integers(-(10**10), 10**10), st.floats(0, 86_400))
def test_a_second_wake_up_is_never_due_in_the_past_nor_within_the_least_interval(
    unanswered: int, later: int, interval_s: float
) -> None:
    now = NOW + later
    at = rewake(unanswered, now=now, min_interval_s=interval_s)
    assert at >= now
    if later >= 0:
        assert at >= NOW + round(interval_s * 1000)


NIGHT = QuietHours(start="22:00", end="07:00", timezone="Europe/Berlin")


@given(st.integers(0, 4_000_000_000_000), st.sampled_from([Urgency.LOW, Urgency.NORMAL]))
def test_nobody_is_woken_in_quiet_hours(now: int, urgency: Urgency) -> None:
    policy = WakePolicy(quiet=NIGHT, urgency=urgency)
    first = wake_due_at(policy, Unseen(1, now), last_wake_at=None, now=now)
    again = rewake_at(policy, unanswered=2, last_wake_at=now, now=now, rng=random.Random(now))
    assert not is_quiet(NIGHT, first)
    assert not is_quiet(NIGHT, again)


def test_what_is_urgent_wakes_at_night_too() -> None:
    night = 1_790_000_000_000 // 86_400_000 * 86_400_000 + 86_400_000
    assert is_quiet(NIGHT, night)
    assert (
        wake_due_at(
            WakePolicy(quiet=NIGHT, urgency=Urgency.HIGH),
            Unseen(1, night),
            last_wake_at=None,
            now=night,
        )
        == night
    )
