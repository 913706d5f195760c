"""A sample is the same however it was made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol.sketches.sample import Sample


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.text(max_size=5)), unique=True, max_size=40),
    st.integers(0, 40),
)
def test_a_sample_is_the_same_however_it_was_made(items: list[tuple[int, str]], cut: int) -> None:
    whole = Sample.of(items, size=8)
    assert Sample.of(items[cut:], size=8).merge(Sample.of(items[:cut], size=8)) == whole
    assert whole.merge(Sample(8, 0, whole.items)) == whole, "what is there twice counts once"
    assert Sample.decode(whole.encode()) == whole
