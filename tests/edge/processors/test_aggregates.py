"""Aggregates that are merged are what they are of all the values, however these were split."""

from __future__ import annotations

import math
import statistics
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.processors.aggregates import AGGREGATES, Partial, merged, of
from edgewake.edge.processors.operators import panes
from edgewake.edge.processors.operators.count_window import CountWindow
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


def test_a_pane_counts_its_readings_also_those_without_the_field() -> None:
    pane, remarks = panes.add(panes.empty(), ["x", "y"], {"x": 1, "y": "text"})
    pane, more = panes.add(pane, ["x", "y"], {"x": None})
    assert (remarks, more) == (["not_a_number"], ["missing", "missing"])
    assert panes.summary(pane, ["x", "y"], ["count", "mean"]) == {
        "readings": 2, "x_count": 1, "x_mean": 1.0, "y_count": None, "y_mean": None,
    }  # fmt: skip
    assert panes.summary(pane, ["x", "y"], ["mean"], plain=True) == {"x": 1.0, "y": None}


def test_what_is_added_changes_no_pane_that_somebody_holds() -> None:
    before, _ = panes.add(panes.empty(), ["x"], {"x": 1})
    after, _ = panes.add(before, ["x"], {"x": 2})
    joined = panes.joined([before, after])
    assert (before["readings"], after["readings"], joined["readings"]) == (1, 2, 3)
    assert panes.summary(before, ["x"], ["sum"]) == {"readings": 1, "x_sum": 1.0}
    assert panes.empty() == {"readings": 0, "fields": {}}


@given(
    st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=40),
    st.sampled_from([(1, 1), (4, 1), (4, 2), (6, 6)]),
)
def test_windows_by_count_are_the_last_readings_whatever_is_missing_in_them(
    values: list[int | None], sizes: tuple[int, int]
) -> None:
    size, every = sizes
    window = CountWindow(["x"], ["sum", "count"], size=size, every=every)
    state, found = window.initial, []
    for t, value in enumerate(values):
        state, made, _ = window.step(state, (t, {"x": value} if value is not None else {"y": 1}))
        found += made
    ends = [end for end in range(every, len(values) + 1, every) if end >= size]
    expected = []
    for end in ends:
        inside = [value for value in values[end - size : end] if value is not None]
        expected.append(
            (
                end - 1,
                {
                    "readings": size,
                    "x_sum": float(sum(inside)) if inside else None,
                    "x_count": len(inside) if inside else None,
                },
            )
        )
    assert found == expected
