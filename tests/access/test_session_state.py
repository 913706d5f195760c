"""The states of a client's stream: every pair is in the table, or impossible."""

from __future__ import annotations

from itertools import product

import pytest

from edgewake.cloud.access.session_state import TABLE, Change, Impossible, State, after


@pytest.mark.parametrize(("state", "change"), list(product(State, Change)))
def test_every_change_of_every_state_is_decided(state: State, change: Change) -> None:
    if (state, change) in TABLE:
        assert after(state, change) is TABLE[state, change]
    else:
        with pytest.raises(Impossible, match=f"{change} cannot happen to a stream that is {state}"):
            after(state, change)


def test_every_state_can_be_left_and_what_is_gone_stays_gone() -> None:
    assert {after(state, Change.LEFT) for state in State} == {State.GONE}
    assert {TABLE[state, change] for state, change in TABLE if state is State.GONE} == {State.GONE}


def test_what_ends_does_not_begin_again() -> None:
    assert {TABLE[state, change] for state, change in TABLE if state is State.ENDING} <= {
        State.ENDING,
        State.GONE,
    }
