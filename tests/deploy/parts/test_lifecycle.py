"""When a part is started again, and when it is given up."""

from __future__ import annotations

from itertools import product

import pytest

from edgewake.deploy.parts.lifecycle import (
    STEADY_S,
    TABLE,
    Event,
    State,
    after,
    ends_in_a_row,
    grace_s,
    is_given_up,
    restart_delay_s,
)


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_every_pair_is_either_in_the_table_or_refused(state: State, event: Event) -> None:
    if (state, event) in TABLE:
        assert after(state, event) is TABLE[state, event]
    else:
        with pytest.raises(ValueError, match=f"{state} cannot {event}"):
            after(state, event)


def test_a_part_can_be_stopped_in_every_state() -> None:
    assert all((state, Event.STOP) in TABLE for state in State)


def test_the_quick_starts_follow_at_doubled_distance_and_the_slow_ones_for_ever() -> None:
    assert [restart_delay_s(ends, 1.0) for ends in (1, 2, 3, 4, 5)] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert [restart_delay_s(ends, 0.0) for ends in (1, 5)] == [0.125, 2.0]
    assert [restart_delay_s(ends, jitter) for ends in (6, 1_000_000) for jitter in (0.0, 1.0)] == [
        30.0,
        60.0,
    ] * 2


def test_ends_in_a_row_count_until_a_steady_life() -> None:
    assert ends_in_a_row(0, 0.1) == 1
    assert ends_in_a_row(4, 59.9) == 5
    assert ends_in_a_row(1000, STEADY_S) == 1


def test_only_what_was_never_ready_is_given_up() -> None:
    assert [
        is_given_up(ends, was_ready=False, dislikes_its_configuration=False) for ends in (1, 4, 5)
    ] == [False, False, True]
    assert is_given_up(1, was_ready=False, dislikes_its_configuration=True)
    assert not any(
        is_given_up(ends, was_ready=True, dislikes_its_configuration=True) for ends in (1, 5, 10**9)
    )


def test_a_group_that_hangs_leaves_time_for_the_later_ones() -> None:
    left, given = 13.0, []
    for groups_left in range(6, -1, -1):
        grace = grace_s(5.0, left_s=left, groups_left=groups_left)
        given.append(grace)
        left -= grace
    assert sum(given) <= 13.001
    assert min(given) > 0.3
