"""Slots of windows that are folded beside Spark: whatever is merged in whatever order, they say what all readings together say."""

from __future__ import annotations

import statistics

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.slots import At, Ends, Slot, load

NUMBERS = st.lists(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=8), max_size=6)
READINGS = st.lists(st.lists(st.one_of(st.just(()), st.tuples(st.integers(0, 5), st.integers(-3, 3), st.none())), max_size=6), max_size=5)


@given(NUMBERS)
def test_figures_of_parts_are_those_of_the_whole(parts: list[list[float | None]]) -> None:
    whole = Slot()
    for values in parts:
        part = Slot()
        for value in values:
            part.add(value)
        read = load(orjson.loads(orjson.dumps(part.dump())))
        assert isinstance(read, Slot)
        whole.merge(read)
    known = [value for values in parts for value in values if value is not None]
    assert (whole.count, whole.min, whole.max) == (len(known), min(known, default=None), max(known, default=None))
    if known:
        assert whole.sum == pytest.approx(sum(known), rel=1e-9, abs=1e-6)
        assert whole.variance == pytest.approx(statistics.pvariance(known), rel=1e-9, abs=1e-6)
    else:
        assert whole.variance is None


def test_the_variance_of_large_numbers_that_are_close_is_not_lost() -> None:
    slot = Slot()
    for value in (1e9 + 1, 1e9 + 2, 1e9 + 3):
        slot.add(value)
    assert slot.variance == pytest.approx(2 / 3)


@given(READINGS)
def test_the_first_and_the_last_of_parts_are_those_of_the_whole(parts: list[list[At | tuple[()]]]) -> None:
    whole = Ends()
    for values in parts:
        part = Ends()
        for value in values:
            part.add(value)
        read = load(orjson.loads(orjson.dumps(part.dump())))
        assert isinstance(read, Ends)
        whole.merge(read)
    known = [value[:2] for values in parts for value in values if value]
    found = [None if end is None else end[:2] for end in (whole.least, whole.most)]
    assert found == [min(known, default=None), max(known, default=None)]
