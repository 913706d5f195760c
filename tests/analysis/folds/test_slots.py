"""Slots of windows that are folded beside Spark: whatever is merged in whatever order, they say
what all readings together say.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.cloud.analysis.folds import slots
from edgewake.cloud.analysis.folds.placed import item
from edgewake.cloud.analysis.folds.slots import DISTINCT_MAX, At, Distinct, Ends, Slot, load

NUMBERS = st.lists(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=8), max_size=6)
READINGS = st.lists(
    st.lists(
        st.one_of(st.just(()), st.tuples(st.integers(0, 5), st.integers(-3, 3), st.none())),
        max_size=6,
    ),
    max_size=5,
)


def merged(kind: Any, parts: Iterable[Iterable[Any]]) -> Any:
    """One of this kind for all parts: each part's own is written, read again, and merged into
    it.
    """
    whole = kind()
    for values in parts:
        part = kind()
        for value in values:
            part.add(value)
        read = load(orjson.loads(orjson.dumps(part.dump())))
        assert isinstance(read, kind)
        whole.merge(read)
    return whole


@given(NUMBERS)
def test_figures_of_parts_are_those_of_the_whole(parts: list[list[float | None]]) -> None:
    whole = merged(Slot, parts)
    known = [value for values in parts for value in values if value is not None]
    assert (whole.count, whole.min, whole.max) == (
        len(known),
        min(known, default=None),
        max(known, default=None),
    )
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


@given(st.lists(st.lists(st.integers(0, 30), max_size=20), max_size=6), st.integers(1, 40))
def test_different_values_of_parts_are_those_of_the_whole_and_exact_below_the_bound(
    parts: list[list[int]], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "DISTINCT_MAX", most)
        whole, at_once = Distinct(), Distinct()
        for values in parts:
            part = Distinct()
            for value in values:
                part.add(item(str(value)))
                at_once.add(item(str(value)))
            read = load(orjson.loads(orjson.dumps(part.dump())))
            whole.merge(read)
        whole.add(item(None))
        assert whole == at_once, "whatever was merged"
        known = {value for values in parts for value in values}
        assert len(whole.smallest) == min(len(known), most)
        if len(known) < most:
            assert whole.count == len(known)


def test_many_different_values_are_estimated() -> None:
    slot = Distinct()
    for i in range(20_000):
        slot.add(item(f"value {i}"))
    assert len(slot.smallest) == DISTINCT_MAX
    assert slot.count == pytest.approx(20_000, rel=0.1)


@given(READINGS)
def test_the_first_and_the_last_of_parts_are_those_of_the_whole(
    parts: list[list[At | tuple[()]]],
) -> None:
    whole = merged(Ends, parts)
    known = [value[:2] for values in parts for value in values if value]
    found = [None if end is None else end[:2] for end in (whole.least, whole.most)]
    assert found == [min(known, default=None), max(known, default=None)]
