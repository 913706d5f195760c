"""Numbers of things: the same reading once, in any order, and another one under an old number
always.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.sequencer.order.own_numbers import BLOCK, BLOCKS_MAX, OwnNumbers

T0 = 1_790_000_000_000
DAY_MS = 86_400_000


def at(number: int) -> int:
    """The thing's time: one reading a second."""
    return T0 + 1000 * number


@given(st.permutations(range(1, 300)), st.lists(st.integers(1, 299), max_size=200))
def test_each_reading_once_in_any_order(order: list[int], again: list[int]) -> None:
    numbers = OwnNumbers()
    assert all(numbers.is_new(n, at(n)) for n in order)
    assert not any(numbers.is_new(n, at(n)) for n in again)
    assert not any(OwnNumbers(numbers.encode()).is_new(n, at(n)) for n in again), "after a restart"


@pytest.mark.long
def test_two_gateways_that_both_buffered_a_week() -> None:
    numbers, week = OwnNumbers(), 7 * 86_400
    assert all(numbers.is_new(n, at(n)) for n in range(1000, week)), "the second one first"
    assert len(numbers.encode()) <= 40 * (BLOCKS_MAX + 1)
    late = [numbers.is_new(n, at(n)) for n in range(1, 1010)]
    assert late == [True] * 999 + [False] * 10


def test_holes_are_no_repeats() -> None:
    numbers = OwnNumbers()
    assert all(numbers.is_new(n, at(n)) for n in range(0, 1000, 3))
    assert all(numbers.is_new(n, at(n)) for n in range(1, 1000, 3))


def test_a_counter_that_begins_anew_loses_nothing() -> None:
    numbers = OwnNumbers()
    assert all(numbers.is_new(n, at(n)) for n in range(500))
    for clock in (at(500), 0, T0 - DAY_MS, T0 + DAY_MS):
        assert all(numbers.is_new(n, clock + 1000 * n) for n in range(200, 260)), clock


def test_of_numbers_with_holes_the_oldest_are_forgotten_and_pass() -> None:
    numbers = OwnNumbers()
    count = BLOCK * (BLOCKS_MAX + 10)
    assert all(numbers.is_new(n, at(n)) for n in range(0, count, 2))
    assert not numbers.is_new(count - 2, at(count - 2))
    assert numbers.is_new(0, at(0)), "forgotten: it counts twice, and is not lost"
    assert len(numbers.encode()) <= 40 * (BLOCKS_MAX + 1)


def test_what_is_no_number_is_always_new() -> None:
    numbers = OwnNumbers()
    for odd in (None, "7", 7.0, True, -1, 1 << 60):
        assert numbers.is_new(odd, T0)
        assert numbers.is_new(odd, T0)
