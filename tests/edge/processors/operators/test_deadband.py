"""A deadband holds back what hardly differs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import Reading
from tests.edge.processors.helpers import FLOATS, T0, at, chain, column, made, remarks, series


@pytest.mark.parametrize(
    ("band", "last", "now", "goes_on"),
    [
        ({"delta": 0.5}, 1.0, 1.5, False), ({"delta": 0.5}, 1.0, 1.5000001, True),
        ({"delta": 0.5}, 1.0, 0.5, False),
        ({"delta": 0.5}, 1, 1.25, False), ({}, 1, 1.0, False), ({}, 1, 1.0000001, True),
        ({"percent": 10}, 100, 110, False),
        ({"percent": 10}, 100, 110.5, True), ({"percent": 10}, -100, -110.5, True),
        ({"percent": 10}, -100, -91, False),
        ({"percent": 10}, 0, 1e-300, True), ({"percent": 10, "delta": 1}, 0, 1, False),
        ({"delta": 5, "percent": 1}, 1_000, 1_009, False),
        ({"delta": 99}, "open", "open", False), ({"delta": 99}, "open", "shut", True),
        ({"delta": 99}, True, False, True),
        ({"delta": 99}, 1, True, True), ({"delta": 99}, 0, False, True),
        ({"delta": 99}, "1", 1, True), ({"delta": 99}, None, None, False),
        ({"delta": 99}, None, 0, True), ({"delta": 99}, 0, None, True),
        ({"delta": 99}, 1e200, 1e200, False),
        ({"delta": 99}, 1e200, 1e201, True),
    ],
)  # fmt: skip
def test_what_differs_enough_goes_on(
    band: dict[str, float], last: object, now: object, goes_on: bool
) -> None:
    found = made(chain({"type": "deadband", **band}), [at(0, x=last), at(1, x=now)])
    assert column(found) == ([last, now] if goes_on else [last])


@pytest.mark.parametrize(("seconds", "goes_on"), [(9.999, False), (10, True), (11, True)])
def test_after_its_longest_time_a_reading_goes_on_in_any_case(
    seconds: float, goes_on: bool
) -> None:
    found = made(
        chain({"type": "deadband", "delta": 99, "max_s": 10}), [at(0, x=1), at(seconds, x=1)]
    )
    assert len(found) == 1 + goes_on


def test_a_drift_goes_on_when_it_has_left_the_band_of_what_went_on_last() -> None:
    assert column(made(chain({"type": "deadband", "delta": 1}), series(0, 0.6, 1.2, 1.8, 2.4))) == [
        0,
        1.2,
        2.4,
    ]


def test_a_field_that_comes_or_goes_is_a_difference_and_one_that_is_not_watched_is_none() -> None:
    whole = chain({"type": "deadband", "delta": 99})
    assert len(made(whole, [at(0, x=1), at(1, x=1, y=1), at(2, x=1), at(3, x=1)])) == 3
    assert (
        len(
            made(
                chain({"type": "deadband", "delta": 99, "fields": ["x"]}),
                [at(0, x=1), at(1, x=1, y=1), at(2, x=1)],
            )
        )
        == 1
    )


@given(st.lists(FLOATS), st.floats(0, 100))
def test_deadband_never_hides_more_than_the_band(values: list[float], delta: float):
    given_readings = series(*values)
    out = made(chain({"type": "deadband", "fields": ["x"], "delta": delta}), given_readings)
    expected: list[Reading] = []
    for reading in given_readings:
        if not expected or abs(float(reading[1]["x"]) - float(expected[-1][1]["x"])) > delta:  # type: ignore[arg-type]
            expected.append(reading)
    assert out == expected


def test_deadband_reports_percent_time_text_and_a_clock_that_was_set_back():
    percent = chain({"type": "deadband", "fields": ["x"], "percent": 10})
    assert column(made(percent, series(100, 109, 111, 121, 123))) == [100, 111, 123]
    timed = chain({"type": "deadband", "fields": ["x"], "delta": 5, "max_s": 3})
    assert [t for t, _ in made(timed, series(0, 1, 2, 1, 0, 1, 2))] == [T0, T0 + 3000, T0 + 6000]
    plain = chain({"type": "deadband"})
    assert made(plain, [at(0, x=1), at(1, x=1), at(2, x="1"), at(3, x="1", y=1), at(4, x="1")]) == [
        at(0, x=1), at(2, x="1"), at(3, x="1", y=1), at(4, x="1"),
    ]  # fmt: skip
    assert made(plain, [at(9, x=1), at(1, x=1)]) == [at(9, x=1), at(1, x=1)]
    assert remarks(plain, [at(9, x=1), at(1, x=1)]) == {"1 deadband": {"backwards": 1}}
