"""Numbers of epochs: they grow with the log, grow with a clock that is right, and hardly ever meet
where the clock was never set.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.tables.epoch import EPOCHS_PER_S, UNSET_EPOCHS, next_epoch
from edgewake.protocol.clock import CLOCK_FLOOR_MS

SET_MS = st.integers(CLOCK_FLOOR_MS, 4_102_444_800_000)
ANY_MS = st.integers(-(10**12), CLOCK_FLOOR_MS - 1) | SET_MS
SEEDS = st.integers(0, 10**6)


def epoch(previous: int, now_ms: int, seed: int) -> int:
    return next_epoch(previous, now_ms=now_ms, rng=random.Random(seed))


@given(st.integers(0, 10**15), ANY_MS, SEEDS)
def test_it_is_above_the_one_before_whatever_the_clock_says(
    previous: int, now_ms: int, seed: int
) -> None:
    assert epoch(previous, now_ms, seed) > previous


@given(SET_MS, SET_MS, SEEDS, SEEDS)
def test_a_log_that_was_made_a_second_later_has_a_later_one(
    one_ms: int, other_ms: int, seed: int, other_seed: int
) -> None:
    earlier, later = sorted((one_ms, other_ms))
    if later // 1000 > earlier // 1000:
        assert epoch(0, later, other_seed) > epoch(0, earlier, seed)


@given(st.integers(-(10**12), CLOCK_FLOOR_MS - 1), SET_MS, SEEDS, SEEDS)
def test_one_of_a_clock_that_was_never_set_is_below_all_of_clocks_that_are_right(
    unset_ms: int, set_ms: int, seed: int, other: int
) -> None:
    assert 0 < epoch(0, unset_ms, seed) < epoch(0, set_ms, other)


def test_new_logs_of_a_device_that_always_starts_in_1970_do_not_meet() -> None:
    """One that keeps its log in memory makes one at each start.

    Ten thousand numbers would meet after a hundred starts.
    """
    rng = random.Random(1)
    assert len({next_epoch(0, now_ms=5_000, rng=rng) for _ in range(2_000)}) == 2_000
    assert UNSET_EPOCHS > 10**12


def test_two_copies_that_wake_in_the_same_second_differ_nearly_always() -> None:
    rng = random.Random(1)
    found = {next_epoch(0, now_ms=CLOCK_FLOOR_MS, rng=rng) for _ in range(100)}
    assert len(found) > 95
    assert max(found) - min(found) < EPOCHS_PER_S


@pytest.mark.parametrize("now_ms", [CLOCK_FLOOR_MS - 1, CLOCK_FLOOR_MS])
def test_the_first_moment_of_a_clock_that_is_right(now_ms: int) -> None:
    assert (epoch(0, now_ms, 1) > UNSET_EPOCHS) is (now_ms == CLOCK_FLOOR_MS)
