"""Values are smoothed over the last ones or over time."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.edge.processors.helpers import FLOATS, at, chain, column, made, said, series


def test_after_one_half_life_half_of_a_step_is_there_and_after_two_three_quarters() -> None:
    found = column(
        made(
            chain({"type": "smooth", "fields": ["x"], "half_life_s": 10}),
            [at(0, x=0), at(10, x=8), at(20, x=8)],
        )
    )
    assert found == pytest.approx([0, 4, 6])


def test_where_the_time_goes_back_no_time_has_passed_for_that_one_reading() -> None:
    processor = {"type": "smooth", "fields": ["x"], "half_life_s": 10}
    given_readings = [at(20, x=0), at(10, x=8), at(20, x=8)]
    assert column(made(chain(processor), given_readings)) == pytest.approx([0, 0, 4])
    assert said(processor, given_readings) == {"backwards": 1}


def test_after_any_time_a_smoothed_value_is_the_value() -> None:
    assert column(
        made(
            chain({"type": "smooth", "fields": ["x"], "half_life_s": 0.001}),
            [at(0, x=1), at(10**9, x=7)],
        )
    ) == [1, 7]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30), st.integers(2, 7))
def test_mean_and_median_are_of_the_last_values_and_no_more(numbers: list[int], count: int) -> None:
    for method in ("mean", "median"):
        found = column(
            made(
                chain({"type": "smooth", "fields": ["x"], "method": method, "count": count}),
                series(*numbers),
            )
        )
        for place, value in enumerate(found):
            last = sorted(numbers[max(0, place + 1 - count) : place + 1])
            middle = (last[(len(last) - 1) // 2] + last[len(last) // 2]) / 2
            assert value == pytest.approx(sum(last) / len(last) if method == "mean" else middle)


def test_what_is_no_number_goes_on_as_it_is_and_is_in_no_mean() -> None:
    found = made(
        chain({"type": "smooth", "fields": ["x", "y"], "method": "mean", "count": 2}),
        [at(0, x=2), at(1, x="off", y=None), at(2, x=4)],
    )
    assert [dict(fields) for _, fields in found] == [
        {"x": 2.0},
        {"x": "off", "y": None},
        {"x": 3.0},
    ]


@given(st.lists(FLOATS, min_size=1))
def test_median_and_mean_of_the_last_values(values: list[float]):
    for method, oracle in (("median", statistics.median), ("mean", statistics.fmean)):
        out = made(
            chain({"type": "smooth", "fields": ["x"], "method": method, "count": 3}),
            series(*values),
        )
        assert column(out) == [
            oracle(values[max(0, place - 2) : place + 1]) for place in range(len(values))
        ]


@given(st.lists(FLOATS, min_size=1), st.floats(0.1, 100))
def test_exponential_smoothing_weighs_by_age(values: list[float], half_life_s: float):
    """The weight of a value is halved with each half-life that it is old."""
    out = made(
        chain({"type": "smooth", "fields": ["x"], "half_life_s": half_life_s}), series(*values)
    )
    keep = 0.5 ** (1 / half_life_s)
    expected = sum(
        value * keep ** (len(values) - 1 - place) * (1 if place == 0 else 1 - keep)
        for place, value in enumerate(values)
    )
    assert math.isclose(float(out[-1][1]["x"]), expected, rel_tol=1e-6, abs_tol=1e-3)  # type: ignore[arg-type]
