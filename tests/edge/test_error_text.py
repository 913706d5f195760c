"""What an error of others says, made fit to be kept and sent."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.error_text import CHARS_MAX, error_text


def test_a_document_in_an_error_is_cut() -> None:
    text = error_text(ValueError("x" * 10_000_000))
    assert (len(text), text[:13], text[-1]) == (CHARS_MAX, "ValueError: x", "…")
    exact = "x" * (CHARS_MAX - len("ValueError: "))
    assert error_text(ValueError(exact)) == f"ValueError: {exact}"


@given(st.text(st.characters(exclude_categories=()), max_size=2 * CHARS_MAX))
def test_whatever_an_error_says_it_can_be_kept_and_sent(text: str) -> None:
    found = error_text(ValueError(text))
    assert len(found) <= CHARS_MAX
    assert orjson.loads(orjson.dumps(found)) == found
