"""Comments in files of a word or two a line."""

from __future__ import annotations

import pytest

from edgewake.protocol.files.comments import without_comment


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("", ""),
        ("# all of it", ""),
        ("  # all of it", ""),
        (" sub anna # since May # or June", "sub anna"),
        ("key\t# a tab", "key"),
        ("sub https://id/#anna # left", "sub https://id/#anna"),
    ],
)
def test_a_comment_stands_at_the_beginning_or_behind_a_blank(line: str, left: str) -> None:
    assert without_comment(line) == left
