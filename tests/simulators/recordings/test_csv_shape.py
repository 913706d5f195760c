"""The shape of a table of text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.simulators.recordings.csv_shape import is_number, sniff
from tests.simulators.recordings.test_readings import read


def test_numbers_with_leading_zeros_are_names(tmp_path: Path):
    readings, _, _ = read(tmp_path / "a.csv", "t,zip,n\n1,007,0.5\n2,123,1e3\n", time="t")
    assert [dict(r.fields) for r in readings] == [
        {"zip": "007", "n": 0.5},
        {"zip": "123", "n": 1000.0},
    ]


@pytest.mark.parametrize(
    ("line", "delimiter"), [("a,b,c", ","), ("a;b,5;c,1", ";"), ("a\tb\tc", "\t"), ("a|b|c", "|")]
)
def test_the_delimiter_is_the_one_that_cuts_evenly(line: str, delimiter: str):
    assert sniff([line, line.replace(",", "", 1) if delimiter == ";" else line]) == delimiter


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_seen_as_a_number(value: float):
    assert is_number(repr(value))
