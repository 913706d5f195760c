"""Windows of event time against a plain account of what the docs say: each reading is in its
windows or counted as late.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.processors.operators.time_window import LATE_RUN_MAX, TimeWindow
from tests.edge.processors.helpers import (
    FLOATS,
    T0,
    at,
    chain,
    made,
    remarks,
    series,
)
from tests.examples import examples

EVERY_MS = 1_000
AGGREGATES = ("count", "sum", "min", "max", "first", "last")


@dataclass
class Account:
    """The rules, said with lists: nothing is merged and nothing is forgotten."""

    width: int
    grace_ms: int
    accepted: list[tuple[int, int]] = field(default_factory=list)
    """(pane, value) of what is in a window that is not over, in the order in which it came."""
    closed: int | None = None
    head: int = 0
    late_run: int = 0
    late: int = 0
    made: list[tuple[int, list[int]]] = field(default_factory=list)
    """(start, values) of each window, those of earlier panes first."""

    def take(self, t: int, value: int) -> None:
        pane = t // EVERY_MS
        if self.closed is not None and pane <= self.closed:
            self.late_run += 1
            if self.late_run <= LATE_RUN_MAX:
                self.late += 1
                return
            self._close(max(pane for pane, _ in self.accepted) + self.width)
            self.accepted, self.closed, self.head = [], None, 0
        self.late_run = 0
        self.accepted.append((pane, value))
        self.head = max(self.head, t)
        over = (self.head - self.grace_ms) // EVERY_MS - 1
        if self.closed is None:
            self.closed = min(over, pane - 1)
        elif over > self.closed:
            self._close(over)

    def _close(self, through: int) -> None:
        assert self.closed is not None
        for last in range(
            self.closed + 1,
            min(through, max(pane for pane, _ in self.accepted) + self.width - 1) + 1,
        ):
            inside = [
                (pane, value) for pane, value in self.accepted if last - self.width < pane <= last
            ]
            if inside:
                values = [value for _, value in sorted(inside, key=lambda one: one[0])]
                self.made.append((max(0, (last - self.width + 1) * EVERY_MS), values))
        self.closed = through


def run(
    window: TimeWindow, readings: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, dict[str, object]]], list[str], list[int]]:
    """What a window makes of readings, its remarks, and how many panes it had after each; its state
    goes through JSON each time.
    """
    state, out, remarks, panes = (
        None,
        list[tuple[int, dict[str, object]]](),
        list[str](),
        list[int](),
    )
    for t, value in readings:
        state, made, said = window.step(state, (t, {"x": value}))
        state = orjson.loads(orjson.dumps(state))
        out += [(at, dict(fields)) for at, fields in made]
        remarks += said
        panes.append(len(state["panes"]))
    return out, remarks, panes


STEPS = st.lists(
    st.tuples(
        st.one_of(
            st.integers(-300, 1_500),
            st.integers(-8_000, 8_000),
            st.sampled_from([0, 1, -1, 60_000, -60_000]),
        ),
        st.integers(-9, 9),
    ),
    max_size=60,
)


@given(
    STEPS,
    st.sampled_from([1, 2, 5]),
    st.sampled_from([0, 1, 999, 1_000, 2_500]),
    st.integers(0, 20_000),
)
def test_each_reading_is_in_its_windows_or_counted_as_late(
    steps: list[tuple[int, int]], width: int, grace_ms: int, begins: int
) -> None:
    readings, t = list[tuple[int, int]](), begins
    for step, value in steps:
        t = max(0, t + step)
        readings.append((t, value))
    account = Account(width, grace_ms)
    for reading in readings:
        account.take(*reading)
    window = TimeWindow(
        ["x"], AGGREGATES, size_ms=width * EVERY_MS, every_ms=EVERY_MS, grace_ms=grace_ms
    )
    out, remarks, panes = run(window, readings)
    expected = [
        (
            start,
            {
                "readings": len(of),
                "x_count": len(of),
                "x_sum": sum(of),
                "x_min": min(of),
                "x_max": max(of),
                "x_first": of[0],
                "x_last": of[-1],
            },
        )
        for start, of in account.made
    ]
    assert out == expected
    assert remarks.count("late") == account.late
    assert max(panes, default=0) <= width + -(-grace_ms // EVERY_MS), "the state has its bound"


@pytest.mark.parametrize("grace_ms", [0, 1, 500, 3_000])
def test_a_window_is_over_with_the_first_reading_that_is_the_grace_past_its_end(
    grace_ms: int,
) -> None:
    window = TimeWindow(["x"], ("sum",), size_ms=EVERY_MS, every_ms=EVERY_MS, grace_ms=grace_ms)
    before, _, _ = run(window, [(10_000, 1), (10_999, 2), (11_000 + grace_ms - 1, 4)])
    after, _, _ = run(window, [(10_000, 1), (10_999, 2), (11_000 + grace_ms, 4)])
    assert before == []
    assert after == [(10_000, {"readings": 2, "x_sum": 3})]


@pytest.mark.parametrize(("late", "restarts"), [(LATE_RUN_MAX, False), (LATE_RUN_MAX + 1, True)])
def test_so_many_late_ones_in_a_row_are_stragglers_and_one_more_is_a_clock_set_back(
    late: int, restarts: bool
) -> None:
    window = TimeWindow(["x"], ("sum",), size_ms=EVERY_MS, every_ms=EVERY_MS, grace_ms=0)
    out, remarks, _ = run(window, [(50_000, 1), *[(5_000, 2)] * late])
    assert remarks == ["late"] * LATE_RUN_MAX + ["restarted"] * restarts
    assert out == ([(50_000, {"readings": 1, "x_sum": 1})] if restarts else [])


@pytest.mark.parametrize(
    "in_time", [50_001, 51_500], ids=["that closes nothing", "that closes a window"]
)
def test_one_that_is_in_time_ends_the_row_of_late_ones(in_time: int) -> None:
    window = TimeWindow(["x"], ("sum",), size_ms=EVERY_MS, every_ms=EVERY_MS, grace_ms=0)
    row = [(5_000, 2)] * LATE_RUN_MAX
    _, remarks, _ = run(window, [(50_000, 1), *row, (in_time, 1), *row])
    assert remarks == ["late"] * 2 * LATE_RUN_MAX


def test_the_windows_of_a_clock_set_back_go_on_from_there() -> None:
    window = TimeWindow(["x"], ("sum",), size_ms=EVERY_MS, every_ms=EVERY_MS, grace_ms=0)
    out, remarks, _ = run(
        window, [(50_000, 1), *[(5_000, 2)] * (LATE_RUN_MAX + 2), (6_000, 4), (5_500, 8)]
    )
    assert out == [(50_000, {"readings": 1, "x_sum": 1}), (5_000, {"readings": 2, "x_sum": 4})]
    assert remarks[-1] == "late"


def test_a_window_that_begins_before_1970_says_that_it_began_then() -> None:
    window = TimeWindow(["x"], ("sum",), size_ms=5 * EVERY_MS, every_ms=EVERY_MS, grace_ms=0)
    out, _, _ = run(window, [(0, 1), (1_000, 2)])
    assert out == [(0, {"readings": 1, "x_sum": 1})]


@pytest.mark.parametrize("jump_ms", [10**6, 10**12, 4_102_444_800_000])
def test_a_reading_of_the_far_future_makes_no_empty_windows(jump_ms: int) -> None:
    window = TimeWindow(["x"], ("sum",), size_ms=100 * EVERY_MS, every_ms=EVERY_MS, grace_ms=0)
    out, _, _ = run(window, [(0, 1), (jump_ms, 2)])
    assert len(out) == 100, "those that hold the first reading"
    assert all(fields == {"readings": 1, "x_sum": 1} for _, fields in out)


def test_the_time_of_a_plain_window_is_its_start_and_it_has_nothing_but_its_fields() -> None:
    window = TimeWindow(
        ["x", "y"], ("max",), size_ms=EVERY_MS, every_ms=EVERY_MS, grace_ms=0, plain=True
    )
    out, remarks, _ = run(window, [(1_700, 5), (1_200, 3), (2_000, 9)])
    assert out == [(1_000, {"x": 5, "y": None})]
    assert remarks == ["missing"] * 3


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 3000), FLOATS), min_size=1),
    st.sampled_from([(1, 5), (5, 5), (2, 6)]),
)
def test_windows_of_time_agree_with_python(rows: list[tuple[int, float]], shape: tuple[int, int]):
    every_s, size_s = shape
    every_ms, size_ms = every_s * 1000, size_s * 1000
    t, given_readings = T0, []
    for step, value in rows:
        t += step
        given_readings.append((t, {"x": value}))
    names = ["count", "mean", "sum", "min", "max", "range", "first", "last", "stddev"]
    out = made(
        chain(
            {
                "type": "window",
                "fields": ["x"],
                "size_s": size_s,
                "every_s": every_s,
                "aggregates": names,
            }
        ),
        given_readings,
    )
    members: dict[int, list[float]] = defaultdict(list)
    for when, fields in given_readings:
        last = when // every_ms * every_ms
        for start in range(last - size_ms + every_ms, last + every_ms, every_ms):
            if start + size_ms <= t:
                members[start].append(float(fields["x"]))
    assert [start for start, _ in out] == sorted(members)
    for start, fields in out:
        values = members[start]
        assert [fields["readings"], fields["x_count"], fields["x_min"], fields["x_max"],
            fields["x_first"], fields["x_last"]] == [
            len(values), len(values), min(values), max(values), values[0], values[-1],
        ]  # fmt: skip
        for name, expected in (
            ("mean", statistics.fmean(values)),
            ("sum", sum(values)),
            ("stddev", statistics.pstdev(values)),
        ):
            assert math.isclose(float(fields[f"x_{name}"]), expected, rel_tol=1e-6, abs_tol=1e-3)  # type: ignore[arg-type]


def test_grace_takes_in_what_comes_out_of_order_and_late_readings_are_counted():
    window = {"type": "window", "fields": ["x"], "size_s": 10, "aggregates": ["sum"]}
    given_readings = [at(1, x=1), at(11, x=2), at(9, x=4), at(21, x=8), at(35, x=0)]
    without, graceful = chain(window), chain(window | {"grace_s": 5})
    assert [fields["x_sum"] for _, fields in made(without, given_readings)] == [1, 2, 8]
    assert [fields["x_sum"] for _, fields in made(graceful, given_readings)] == [5, 2, 8]
    assert remarks(without, given_readings) == {"1 window": {"late": 1}}
    assert remarks(graceful, given_readings) == {}


def test_one_reading_of_the_far_future_costs_a_bounded_number_of_readings():
    one = chain({"type": "window", "fields": ["x"], "size_s": 10, "aggregates": ["count"]})
    given_readings = [at(1, x=1), at(10**9, x=1), *[at(2 + n, x=1) for n in range(100)]]
    out = made(one, given_readings)
    assert sum(int(fields["readings"]) for _, fields in out) == 2 + 100 - LATE_RUN_MAX - 2  # type: ignore[arg-type]  # two wait in the open window
    assert remarks(one, given_readings) == {"1 window": {"late": LATE_RUN_MAX, "restarted": 1}}


def test_readings_without_a_number_are_in_the_window_but_not_in_the_mean():
    one = chain(
        {"type": "window", "fields": ["x", "y"], "size_count": 4, "aggregates": ["mean", "count"]}
    )
    given_readings = [at(0, x=2), at(1, x="a"), at(2, x=True), at(3, x=4)]
    assert made(one, given_readings) == [
        at(3, readings=4, x_mean=3, x_count=2, y_mean=None, y_count=None)
    ]
    assert remarks(one, given_readings) == {"1 window": {"not_a_number": 2, "missing": 4}}


def test_downsampling_keeps_the_names():
    one = chain({"type": "downsample", "fields": ["x"], "every_s": 2})
    assert made(one, series(1, 3, 5, 9, 11)) == [at(0, x=2), at(2, x=7)]
