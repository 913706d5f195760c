"""Foreign texts on a terminal."""

from __future__ import annotations

import pytest

from edgewake.protocol.printable import UNSEEN, printable, shortest


@pytest.mark.parametrize("text", ["", "plain", "21,5 °C", "Zürich"])
def test_a_text_that_people_can_see_stays(text: str) -> None:
    assert printable(text) == text


def test_a_character_that_moves_or_colours_a_terminal_is_replaced() -> None:
    assert printable("a\x1b[31mb\r\u202ec") == f"a{UNSEEN}[31mb{UNSEEN}{UNSEEN}c"


def test_line_ends_stay_where_they_are_to_be_kept() -> None:
    assert printable("a\nb\tc", keep="\n") == f"a\nb{UNSEEN}c"


@pytest.mark.parametrize(
    ("number", "text"), [(2.0, "2"), (-0.5, "-0.5"), (1e300, "1e+300"), (0.1, "0.1"), (7, "7")]
)
def test_a_number_is_as_short_as_it_can_be_read_back(number: float, text: str) -> None:
    assert shortest(number) == text
    assert float(text) == number
