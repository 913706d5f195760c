"""When a part is started again, and when it is given up."""

from __future__ import annotations

from itertools import product

import pytest

from edgewake.deploy.lifecycle import BACKOFF_MAX_S, FAILURES_MAX, TABLE, Event, State, after, grace_s, restart_delay_s


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_every_pair_is_either_in_the_table_or_refused(state: State, event: Event) -> None:
    if (state, event) in TABLE:
        assert after(state, event) is TABLE[state, event]
    else:
        with pytest.raises(ValueError, match=f"{state} cannot {event}"):
            after(state, event)


def test_a_part_can_be_stopped_in_every_state() -> None:
    assert all((state, Event.STOP) in TABLE for state in State)


def test_the_wait_grows_with_each_end_and_has_jitter() -> None:
    assert [restart_delay_s([0.0] * n, 1.0, 1.0) for n in (1, 2, 3, 4)] == [0.25, 0.5, 1.0, 2.0]
    assert restart_delay_s([0.0] * 4, 1.0, 0.0) == 1.0


def test_the_fifth_end_within_a_minute_is_the_last() -> None:
    assert restart_delay_s([0.0, 10.0, 20.0, 30.0, 59.0], 59.0, 0.5) is None


def test_a_part_that_ends_now_and_then_is_always_started_again() -> None:
    ends = [100.0 * i for i in range(50)]
    assert restart_delay_s(ends, ends[-1], 1.0) == 0.25


def test_the_wait_is_bounded() -> None:
    assert all((restart_delay_s([0.0] * n, 0.0, 1.0) or 0) <= BACKOFF_MAX_S for n in range(FAILURES_MAX))


def test_a_group_that_hangs_leaves_time_for_the_later_ones() -> None:
    left, given = 13.0, []
    for groups_left in range(6, -1, -1):
        grace = grace_s(5.0, left_s=left, groups_left=groups_left)
        given.append(grace)
        left -= grace
    assert sum(given) <= 13.001
    assert min(given) > 0.3
