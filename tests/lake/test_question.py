"""Whether a text begins like a question."""

from __future__ import annotations

from edgewake.cloud.lake.question import is_question


def test_a_text_of_comments_alone_costs_no_more_than_its_length() -> None:
    """The operations API looks at it in its own process: one of 60 characters took days."""
    assert not is_question("/**/" * 4_900 + "x")
    assert not is_question("/*" * 9_000)
    assert is_question("/* a */ -- b\n (" * 1_000 + "SELECT 1")
