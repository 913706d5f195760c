"""Tables on a terminal show the numbers that there are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.commands.common.output import cell, column_of, print_items


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_text_of_a_number_reads_back_as_the_same_number_and_no_shorter_one_does(
    number: float,
) -> None:
    text = cell("x", number)
    assert float(text) == number
    assert len(text) <= len(repr(number))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.00527, "0.00527"),
        (53.34981, "53.34981"),
        (12.0, "12"),
        (-0.5, "-0.5"),
        (1e-7, "1e-07"),
        (2**53 + 1, str(2**53 + 1)),
    ],
)
def test_a_number_keeps_its_digits(number: float, text: str) -> None:
    assert cell("x", number) == text


@given(
    st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.none(), max_size=8
    )
)
def test_the_points_of_a_column_are_below_one_another(values: list[float | int | None]) -> None:
    texts = [text for text in column_of("x", values) if text]
    assert len({len(re.split("[.e]", text)[0]) for text in texts}) <= 1


def test_a_table_of_readings(capsys: pytest.CaptureFixture[str]) -> None:
    """Columns of one name, as SELECT may give them, and a column of texts beside numbers."""
    print_items(
        [{"lat": 53.34981, "what": "a", "n": 5}, {"lat": 7.5, "what": 1.5, "n": None}],
        ["lat", "what", "n", "n"],
        as_json=False,
    )
    told = capsys.readouterr().out
    assert "│ 53.34981 │ a    │ 5 │ 5 │" in told
    assert "│  7.5     │ 1.5  │   │   │" in told
