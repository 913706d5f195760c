"""At most once, decided without a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.actions.progress import Outcome, Progress, decode, resumed

OUTCOMES = st.sampled_from(list(Outcome))


@given(st.lists(OUTCOMES), st.integers(1, 10**9))
def test_what_was_begun_and_did_not_end_is_counted_once_and_never_begun_again(
    ended: list[Outcome], position: int
) -> None:
    state = Progress()
    for outcome in ended:
        state = state.ended(outcome)
    state = decode(state.begin(position).encode())
    assert state.begun == position
    again = resumed(state)
    assert (again.begun, again.counts.get("unknown", 0)) == (None, ended.count(Outcome.UNKNOWN) + 1)
    assert resumed(decode(again.encode())) == again


def test_nothing_is_unknown_where_nothing_was_begun() -> None:
    assert resumed(Progress().ended(Outcome.DONE)) == Progress(None, {"done": 1})


@pytest.mark.parametrize(
    "kept",
    [
        None,
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"begun": 1, "counts": {"foreign": 1}}',
        b'{"begun": 1, "counts": 3}',
    ],
)
def test_a_state_that_cannot_be_read_is_none(kept: bytes | None) -> None:
    assert decode(kept) == Progress()
