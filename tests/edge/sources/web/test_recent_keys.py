"""The keys of requests that were taken already."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.sources.web.recent_keys import KEYS_MAX, RecentKeys


@given(st.lists(st.integers(0, 3 * KEYS_MAX), max_size=4 * KEYS_MAX))
def test_of_all_keys_the_last_ones_are_known(order: list[int]) -> None:
    """Against a plain list; also after each of them was written and read."""
    keys, model = RecentKeys(), list[int]()
    for number in order:
        keys.add(f"k{number}", b"")
        model = [*(each for each in model if each != number), number][-KEYS_MAX:]
    again = RecentKeys.decode(keys.encode())
    assert [number for number in range(3 * KEYS_MAX + 1) if f"k{number}" in again] == sorted(model)


@pytest.mark.parametrize("text", [None, "", "nonsense", "a b c", "\0"])
def test_keys_that_cannot_be_read_are_none(text: str | None) -> None:
    assert "k" not in RecentKeys.decode(text)
