"""When and where the uplink may send."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.uplink.schedule import (
    BURST_S,
    DAY_MS,
    MINUTE_MS,
    Brokers,
    Cap,
    Hours,
    closed_lanes,
)


@given(
    st.integers(100, 100_000),
    st.lists(st.tuples(st.floats(0, 30), st.integers(1, 200_000)), max_size=60),
)
def test_over_any_time_no_more_goes_than_the_cap_a_burst_and_one_packet(
    per_s: int, packets: list[tuple[float, int]]
) -> None:
    cap, now_s = Cap(per_s), 0.0
    sent: list[tuple[float, int]] = []
    for wait_s, size in packets:
        now_s += wait_s
        due_s = cap.due_s(now_s)
        assert due_s is None or due_s > now_s
        if due_s is None:
            cap.spent(size, now_s)
            sent.append((now_s, size))
    for i, (begins_s, _) in enumerate(sent):
        for j in range(i, len(sent)):
            before_last = sum(size for _, size in sent[i:j])
            assert before_last <= per_s * (sent[j][0] - begins_s + BURST_S) * (1 + 1e-9)


@given(st.integers(100, 100_000), st.integers(1, 1 << 20))
def test_what_waits_for_the_cap_goes_when_its_time_has_come(per_s: int, size: int) -> None:
    cap = Cap(per_s)
    cap.spent(size, 100.0)
    due_s = cap.due_s(100.0)
    assert (due_s is None) == (size <= per_s * BURST_S)
    assert due_s is None or cap.due_s(due_s) is None


def test_without_a_cap_nothing_waits() -> None:
    cap = Cap(None)
    cap.spent(1 << 40, 0.0)
    assert cap.due_s(0.0) is None


@given(st.integers(0, 1439), st.integers(0, 1439), st.integers(0, 10 * DAY_MS))
def test_hours_hold_for_their_minutes_and_no_others(first: int, last: int, now_ms: int) -> None:
    if first == last:
        return
    hours = Hours.parse(f"{first // 60:02}:{first % 60:02}-{last // 60:02}:{last % 60:02}")
    minutes = {minute % 1440 for minute in range(first, last if last > first else last + 1440)}
    assert hours.holds(now_ms) == (now_ms % DAY_MS // MINUTE_MS in minutes)


@pytest.mark.parametrize(
    "text", ["", "22-6", "24:00-06:00", "22:00-06:60", "06:00-06:00", " 22:00-06:00"]
)
def test_what_are_no_hours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hours such as|begins when"):
        Hours.parse(text)


def test_a_lane_without_hours_is_always_open() -> None:
    hours = {Lane.BULK: [Hours.parse("22:00-06:00"), Hours.parse("12:00-13:00")], Lane.NORMAL: []}
    assert closed_lanes(hours, 12 * 60 * MINUTE_MS) == frozenset()
    assert closed_lanes(hours, 14 * 60 * MINUTE_MS) == {Lane.BULK}


def brokers(count: int = 2, seed: int = 1) -> Brokers:
    return Brokers(
        count, minimum_s=0.2, maximum_s=30.0, home_after_s=300.0, rng=random.Random(seed)
    )


def test_home_is_tried_twice_before_the_next_address_has_its_turn() -> None:
    of = brokers()
    assert of.choose(0.0) == (0, 0.0)
    of.ended(0, 0.0)
    index, wait_s = of.choose(0.0)
    assert (index, 0.1 <= wait_s <= 0.2) == (0, True)
    of.ended(0, wait_s)
    assert of.choose(wait_s) == (1, 0.0)


def test_elsewhere_home_is_looked_for_and_gone_back_to() -> None:
    of = brokers()
    for _ in range(6):
        of.ended(0, 0.0)
    of.connected(1, 10.0)
    assert not of.home_is_due(309.0)
    assert of.home_is_due(310.0)
    of.looked_for_home(310.0, answers=False)
    assert not of.home_is_due(609.0)
    of.looked_for_home(610.0, answers=True)
    of.ended(1, 610.0, lasted_s=600.0)
    assert of.choose(610.0) == (0, 0.0)
    of.connected(0, 611.0)
    assert not of.home_is_due(10_000.0)


@given(st.integers(1, 5), st.integers(0, 1000), st.lists(st.floats(0, 20), min_size=1, max_size=60))
def test_while_all_are_away_each_is_tried_again_and_none_more_often_than_its_back_off_allows(
    count: int, seed: int, took_s: list[float]
) -> None:
    of, now_s = brokers(count, seed), 0.0
    tried: dict[int, list[float]] = {index: [] for index in range(count)}
    for each_s in took_s * 4:
        index, wait_s = of.choose(now_s)
        assert 0 <= wait_s <= 30.0
        now_s += wait_s
        tried[index].append(now_s)
        now_s += each_s
        of.ended(index, now_s)
    for times in tried.values():
        waits = [after - before for before, after in pairwise(times)]
        assert all(wait_s >= min(30.0, 0.2 * 2.0**n) / 2 - 1e-9 for n, wait_s in enumerate(waits))
    if len(took_s) >= count:
        assert all(tried.values()), "an address has never had its turn"
