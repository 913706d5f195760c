"""A rate is the difference of two readings over their time."""

from __future__ import annotations

import pytest

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.processor import NUMBER_MAX
from tests.edge.processors.helpers import at, chain, column, made, remarks, said


@pytest.mark.parametrize(
    ("given_readings", "expected", "remark"),
    [
        ([at(0, x=1), at(2, x=5)], [None, 2.0], {}),
        ([at(0, x=1), at(0, x=5), at(1, x=6)], [None, None, 1.0], {"backwards": 1}),
        ([at(5, x=1), at(0, x=5), at(1, x=6)], [None, None, 1.0], {"backwards": 1}),
        ([at(0, x=1), at(1, x=None), at(2, x=5)], [None, None, 2.0], {"missing": 1}),
        ([at(0, x=1), at(1, x="fast"), at(2, x=5)], [None, None, 2.0], {"not_a_number": 1}),
        ([at(0, x=1), at(1, x=True), at(2, x=5)], [None, None, 2.0], {"not_a_number": 1}),
        ([at(0, x=NUMBER_MAX), at(0.001, x=-NUMBER_MAX)], [None, -2 * NUMBER_MAX * 1_000], {}),
        ([at(0, x=9), at(1, x=4)], [None, -5.0], {}),
    ],
)
def test_a_rate_is_from_the_last_reading_with_a_number(
    given_readings: list[Reading], expected: list[object], remark: dict[str, int]
) -> None:
    processor = {"type": "rate", "field": "x"}
    assert column(made(chain(processor), given_readings), "x_rate") == expected
    assert said(processor, given_readings) == remark


@pytest.mark.parametrize(("now", "expected"), [(9, None), (10, 0.0), (11, 3_600.0)])
def test_a_counter_that_falls_has_begun_anew_and_one_that_stands_has_not(
    now: int, expected: float | None
) -> None:
    processor = {"type": "rate", "field": "x", "counter": True, "per_s": 3600, "name": "per_hour"}
    given_readings = [at(0, x=10), at(1, x=now)]
    assert column(made(chain(processor), given_readings), "per_hour")[1] == expected
    assert said(processor, given_readings).get("restarted", 0) == (expected is None)


def test_rate_is_null_where_there_is_none():
    one = chain({"type": "rate", "field": "x", "per_s": 60, "counter": True, "name": "r"})
    given_readings = [
        at(0, x=1),
        at(2, x=3),
        at(3, x=None),
        at(4, x="a"),
        at(4, x=4),
        at(3, x=5),
        at(5, x=7),
        at(6, x=0),
        at(7, x=2),
    ]
    assert [fields["r"] for _, fields in made(one, given_readings)] == [
        None,
        60,
        None,
        None,
        30,
        None,
        60,
        None,
        120,
    ]
    assert remarks(one, given_readings) == {
        "1 rate": {"missing": 1, "not_a_number": 1, "backwards": 1, "restarted": 1}
    }
