"""Counts are never too low, and merge."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.sketches.count_min import CountMin

texts = st.lists(st.sampled_from(["a", "b", "ü", "12.5", "", "a longer text"]), max_size=60)


@given(texts, texts)
def test_counts_are_never_too_low_and_merge(one: list[str], two: list[str]) -> None:
    found = CountMin.of(one, depth=3, width=64).merge(CountMin.of(two, width=16))
    assert found == CountMin.of(one + two, depth=3, width=16)
    assert all(found.count(text) >= count for text, count in Counter(one + two).items())
    assert CountMin.decode(found.encode()) == found


def test_counts_answer_within_their_bounds() -> None:
    numbers = [str(i % 300) for i in range(9_000)]
    found, other = CountMin.of(numbers), CountMin.of(["5", "7", "900"])
    assert sum(found.count(str(i)) - 30 > found.error for i in range(300)) <= 300 * (
        1 - found.confidence
    )
    assert 60 <= found.inner_product(other) <= 60 + found.error
