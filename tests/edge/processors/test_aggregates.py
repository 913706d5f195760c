"""Aggregates that are merged are what they are of all the values, however these were split."""

from __future__ import annotations

import math
import statistics
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.processors.aggregates import AGGREGATES, Partial, merged, of
from edgewake.edge.processors.processor import NUMBER_MAX, number

VALUES = st.lists(
    st.one_of(st.integers(-1_000, 1_000), st.floats(-1e6, 1e6)), min_size=1, max_size=40
)


def partial(values: list[float]) -> Partial:
    return reduce(merged, map(of, values))


@given(VALUES, st.data())
def test_however_values_are_split_and_merged_they_are_the_same(
    values: list[float], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(values)))
    parts = [part for part in (values[:cut], values[cut:]) if part]
    found = reduce(merged, map(partial, parts))
    assert AGGREGATES["count"](found) == len(values)
    assert AGGREGATES["min"](found) == min(values)
    assert AGGREGATES["max"](found) == max(values)
    assert AGGREGATES["range"](found) == max(values) - min(values)
    assert (AGGREGATES["first"](found), AGGREGATES["last"](found)) == (values[0], values[-1])
    assert AGGREGATES["sum"](found) == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-6)
    assert AGGREGATES["mean"](found) == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-9)
    assert AGGREGATES["stddev"](found) == pytest.approx(
        statistics.pstdev(map(float, values)), rel=1e-6, abs=1e-6
    )


@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=30))
def test_the_deviation_of_values_far_from_zero_keeps_its_digits(values: list[float]) -> None:
    """The difference of squares would have none left."""
    far = [1e9 + value for value in values]
    assert AGGREGATES["stddev"](partial(far)) == pytest.approx(statistics.pstdev(far), abs=1e-6)


@given(st.lists(st.sampled_from([NUMBER_MAX, -NUMBER_MAX, 0.0, 1.0]), min_size=1, max_size=50))
def test_the_largest_numbers_that_are_measured_with_have_finite_aggregates(
    values: list[float],
) -> None:
    found = partial(values)
    assert all(math.isfinite(aggregate(found)) for aggregate in AGGREGATES.values())


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, 1.0), (-2.5, -2.5), (NUMBER_MAX, NUMBER_MAX), (-NUMBER_MAX, -NUMBER_MAX), (2e140, None),
        (-2e140, None), (2**63, 2.0**63),
     (True, None),      (False, None), ("1", None), ("", None), (None, None),
     (math.inf, None), (-math.inf, None), (math.nan, None), (0, 0.0)],
)  # fmt: skip
def test_what_is_measured_with(value: object, expected: float | None) -> None:
    assert number(value) == expected  # type: ignore[arg-type]


def test_one_value_has_no_deviation_and_its_count_is_a_whole_number() -> None:
    assert AGGREGATES["stddev"](of(5.0)) == 0.0
    assert repr(AGGREGATES["count"](of(5.0))) == "1"


# panes
