"""Spellings of units."""

from __future__ import annotations

import pytest

from edgewake.protocol.frames import units
from edgewake.protocol.frames.field_names import UNIT_CHARS_MAX
from edgewake.protocol.frames.units import as_written


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("Cel", "°C"), ("degC", "°C"), ("°C", "°C"), (" °C ", "°C"), ("%RH", "%"),
        ("m3/h", "m³/h"), ("\u03bcg/m3", "\u00b5g/m³"), ("mW", "mW"), ("MW", "MW"),
        ("furlong", "furlong"), ("", ""),
    ],
)  # fmt: skip
def test_spellings_of_one_unit_become_what_people_write(said: str, written: str) -> None:
    assert as_written(said) == written


def test_each_spelling_is_of_one_unit_and_short_enough() -> None:
    others = [other for spellings in units._SPELLINGS.values() for other in spellings]
    assert len(others) == len(set(others))
    assert not set(others) & units._SPELLINGS.keys()
    assert max(map(len, units._SPELLINGS)) <= UNIT_CHARS_MAX
