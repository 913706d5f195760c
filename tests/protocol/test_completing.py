"""Names for the shell's completion."""

from __future__ import annotations

import pytest

from edgewake.protocol import completing


def test_names_that_begin_with_the_word_come_once_and_in_order() -> None:
    names = ["speed", 7, "spark", None, "temperature", "speed"]
    assert completing.beginning_with(names, "sp") == ["spark", "speed"]


def test_no_more_names_are_shown_than_a_screen_has() -> None:
    names = [f"{number:04}" for number in range(completing.NAMES_MAX + 1)]
    assert completing.beginning_with(reversed(names), "") == names[:-1]


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "no address"])
def test_only_addresses_of_http_are_asked(url: str) -> None:
    with pytest.raises(ValueError, match="expected http"):
        completing.ask(url)
