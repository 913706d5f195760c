"""Of a curve those readings are kept that show its shape."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.operators.lttb import BUCKET_CHARS_MAX, BUCKET_READINGS_MAX
from edgewake.edge.processors.processor import NUMBER_MAX
from tests.edge.processors.helpers import (
    FLOATS,
    at,
    chain,
    column,
    made,
    readings,
    remarks,
    said,
    series,
)
from tests.examples import examples


@pytest.mark.parametrize(
    ("count", "full"), [(BUCKET_READINGS_MAX, 0), (BUCKET_READINGS_MAX + 1, 1)]
)
def test_a_bucket_holds_so_many_readings(count: int, full: int) -> None:
    processor = {"type": "lttb", "field": "x", "every_s": 3600}
    # The first goes on at once.
    given_readings = [at(place / 1_000, x=place) for place in range(count + 1)]
    assert said(processor, given_readings).get("bucket_full", 0) == full


def test_a_bucket_holds_so_many_characters_and_the_reading_that_exceeds_them() -> None:
    processor = {"type": "lttb", "field": "x", "every_s": 3600}
    text, needed = "x" * 1_000, BUCKET_CHARS_MAX // 1_000 + 1
    given_readings = [at(0, x=0), *[at(place / 100, x=place, text=text) for place in range(needed)]]
    assert said(processor, given_readings) == {}
    assert said(processor, [*given_readings, at(9, x=1)]) == {"bucket_full": 1}


@given(readings())
@settings(max_examples=examples(40))
def test_what_a_curve_keeps_is_of_it_and_in_order_of_arrival(given_readings: list[Reading]) -> None:
    usable = [
        one
        for one in given_readings
        if isinstance(one[1].get("x"), int | float) and not isinstance(one[1]["x"], bool)
    ]
    found = made(chain({"type": "lttb", "field": "x", "every_s": 1}), given_readings)
    place = 0
    for one in found:
        place += 1 + usable[place:].index(one)
    if usable and abs(usable[0][1]["x"]) <= NUMBER_MAX:  # type: ignore[arg-type]
        assert found[:1] == usable[:1], "the first always goes on"


@given(st.lists(FLOATS, min_size=1))
def test_lttb_chooses_real_readings_in_order_and_keeps_a_peak(values: list[float]):
    given_readings = series(*values)
    out = made(chain({"type": "lttb", "field": "x", "every_s": 4}), given_readings)
    assert out == [reading for reading in given_readings if reading in out]
    assert out[0] == given_readings[0]
    buckets = [t // 4000 for t, _ in out[1:]]
    assert len(set(buckets)) == len(buckets)


def areas(values: list[float], size: int, chosen: list[float]) -> list[tuple[float, float]]:
    """As the thesis has it, but after our own choices: of each bucket the triangle of what was
    chosen, and the largest, each formed with the choice before it and the next bucket's mean. The
    last bucket is still being filled.
    """
    points = list(enumerate(values))
    buckets = [
        [point for point in points[1:] if point[0] // size == number]
        for number in range(len(values) // size + 1)
    ]
    before, found = points[0], []
    for (bucket, after), y in zip(
        pairwise([bucket for bucket in buckets if bucket]), chosen, strict=False
    ):
        (ax, ay), cx, cy = (
            before,
            statistics.fmean(x for x, _ in after),
            statistics.fmean(y for _, y in after),
        )
        formed = {
            point: abs((point[0] - ax) * (cy - ay) - (cx - ax) * (point[1] - ay))
            for point in bucket
        }
        before = next(point for point in bucket if point[1] == y)
        found.append((formed[before], max(formed.values())))
    return found


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=60))
def test_lttb_agrees_with_the_method_as_it_is_published(whole: list[int]):
    """The largest triangle but for rounding: two may be of one size, and then either may be
    chosen.
    """
    values = [value + place * 0.01371 for place, value in enumerate(whole)]
    first, *chosen = column(
        made(chain({"type": "lttb", "field": "x", "every_s": 4}), series(*values))
    )
    formed = areas(values, 4, chosen)
    assert (first, len(chosen)) == (values[0], len(formed))
    for area, largest in formed:
        assert area == pytest.approx(largest, rel=1e-9, abs=1e-9)


def test_lttb_keeps_a_peak_that_a_mean_would_flatten():
    values = [0.0] * 10 + [50.0] + [0.0] * 20
    assert 50.0 in column(
        made(chain({"type": "lttb", "field": "x", "every_s": 5}), series(*values))
    )
    assert 50.0 not in column(
        made(chain({"type": "downsample", "fields": ["x"], "every_s": 5}), series(*values))
    )


def test_a_bucket_that_is_too_full_is_closed_early_and_said():
    one = chain({"type": "lttb", "field": "x", "every_s": 86400})
    given_readings = series(*range(1000), every_s=0.01)
    assert len(made(one, given_readings)) > 2
    assert remarks(one, given_readings)["1 lttb"]["bucket_full"] == 4
