"""Rates of the pipeline over the last minutes."""

from __future__ import annotations

from edgewake.cloud.ops.tables.flow import POINTS_MAX, Flow, Point, delay_s


def test_counts_become_rates_between_two_looks() -> None:
    flow = Flow()
    flow.sample(100, received=10, passed_on=5, computed_per_s=1)
    assert (flow.points(100), flow.newest) == ([], None)
    flow.sample(105, received=20, passed_on=5, computed_per_s=2.04)
    flow.sample(105, received=99, passed_on=99, computed_per_s=9)
    flow.sample(110, received=9, passed_on=109, computed_per_s=3)
    assert flow.points(112) == [Point(7, 2, 0, 2), Point(2, 0, 2, 3)]
    assert flow.newest == Point(0, 0, 2, 3)


def test_the_points_are_bounded() -> None:
    flow = Flow()
    for at in range(POINTS_MAX + 10):
        flow.sample(at, received=at, passed_on=at, computed_per_s=1)
    assert len(flow.points(1000)) == POINTS_MAX


def test_how_long_what_waits_takes_is_told_where_something_moves() -> None:
    assert [delay_s(*one) for one in ((0, None), (None, 5), (10, 0), (10, None), (10, 3))] == [
        0.0,
        None,
        None,
        None,
        3.33,
    ]
