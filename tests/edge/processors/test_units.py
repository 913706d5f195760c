"""Values in one unit are converted into another."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.processors.units import UNITS
from tests.edge.processors.helpers import FLOATS, at, chain, made, remarks


@pytest.mark.parametrize(
    ("unit", "to", "value", "expected"),
    [
        ("km/h", "m/s", 36, 10),
        ("[degF]", "Cel", 212, 100),
        ("Cel", "K", 0, 273.15),
        ("kW.h", "J", 1, 3.6e6),
        ("psi", "bar", 1, None),
    ],
)
def test_units(unit: str, to: str, value: float, expected: float | None):
    change = {"type": "units", "fields": {"x": {"unit": unit, "to": to}}}
    if expected is None:
        with pytest.raises(ValueError, match="unknown unit"):
            chain(change)
        return
    ((_, fields),) = made(chain(change), [at(0, x=value)])
    assert math.isclose(float(fields["x"]), expected)  # type: ignore[arg-type]


@given(
    FLOATS,
    st.sampled_from(
        [
            (a, b)
            for a, one in UNITS.items()
            for b, other in UNITS.items()
            if one.dimension == other.dimension
        ]
    ),
)
def test_a_unit_there_and_back_is_the_same(value: float, pair: tuple[str, str]):
    there, back = (
        {"type": "units", "fields": {"x": {"unit": a, "to": b}}} for a, b in (pair, pair[::-1])
    )
    ((_, fields),) = made(chain(there, back), [at(0, x=value)])
    assert math.isclose(float(fields["x"]), value, rel_tol=1e-9, abs_tol=1e-6)  # type: ignore[arg-type]


def test_a_text_is_not_converted():
    one = chain({"type": "units", "fields": {"x": {"unit": "m", "to": "km"}}})
    assert made(one, [at(0, x="far"), at(1, y=1)]) == [at(0, x="far"), at(1, y=1)]
    assert remarks(one, [at(0, x="far"), at(1, y=1)]) == {"1 units": {"not_a_number": 1}}
