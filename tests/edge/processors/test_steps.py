"""Each processor against plain Python, and its rule for what it cannot use."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.operators.time_window import LATE_RUN_MAX
from edgewake.edge.processors.processor import NUMBER_MAX
from edgewake.edge.processors.units import UNITS
from tests.edge.processors.helpers import T0, at, chain, made, readings, remarks, series
from tests.examples import examples

FLOATS = st.floats(-1e6, 1e6, allow_nan=False)


def xs(given_readings: list[Reading]) -> list[object]:
    return [fields.get("x") for _, fields in given_readings]


def is_measured(value: object) -> bool:
    return type(value) in (int, float) and abs(value) <= NUMBER_MAX  # type: ignore[arg-type]


# without a state


def test_filter_keeps_what_is_true_and_remarks_on_what_is_neither():
    one = chain({"type": "filter", "where": "x > 1"})
    given_readings = [at(0, x=1), at(1, x=2), at(2, x="2"), at(3, y=2)]
    assert made(one, given_readings) == [at(1, x=2)]
    assert remarks(one, given_readings) == {"1 filter": {"unknown": 2}}


def test_select_drops_renames_and_swaps():
    assert made(
        chain({"type": "select", "drop": ["y"], "rename": {"x": "z"}}), [at(0, x=1, y=2, k=3)]
    ) == [at(0, k=3, z=1)]
    assert made(chain({"type": "select", "keep": ["x"]}), [at(0, x=1, y=2), at(1, y=2)]) == [
        at(0, x=1)
    ]
    assert made(chain({"type": "select", "rename": {"x": "y", "y": "x"}}), [at(0, x=1, y=2)]) == [
        at(0, x=2, y=1)
    ]
    assert made(chain({"type": "select", "rename": {"x": "y"}}), [at(0, x=1, y=2)]) == [at(0, y=1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("[1, null, 2.5]", [{"x": 1}, {"x": None}, {"x": 2.5}], id="values"),
        pytest.param('["a", "b"]', [{"x": "a"}, {"x": "b"}], id="texts"),
        pytest.param(
            '[{"id": 1, "m": {"v": 2}}, {"id": 2}]',
            [{"x_id": 1, "x_m_v": 2}, {"x_id": 2}],
            id="objects",
        ),
        pytest.param("[[1, 2]]", [{"x": "[1,2]"}], id="a list of lists"),
        pytest.param("[]", [], id="nothing"),
    ],
)
def test_explode_makes_a_reading_of_each_item(text, expected):
    one = chain({"type": "explode", "field": "x", "position": "at"})
    found = made(one, [at(5, x=text, k="same")])
    assert found == [at(5, k="same", **each, at=n) for n, each in enumerate(expected)]
    assert remarks(one, [at(5, x=text)]) == {}


def test_explode_says_what_is_no_list_and_what_is_too_long():
    one = chain({"type": "explode", "field": "x", "into": "item"})
    given_readings = [at(0, y=1), at(1, x=1), at(2, x="{}"), at(3, x="[1"), at(4, x="[true]")]
    assert made(one, given_readings) == [at(4, item=True)]
    assert remarks(one, given_readings) == {"1 explode": {"missing": 1, "not_a_list": 3}}
    long = [at(0, x=str([*range(300)]))]
    assert [each["item"] for _, each in made(one, long)] == [*range(256)]
    assert remarks(one, long) == {"1 explode": {"too_many": 1}}
    deep = [at(0, x="[1, " + '{"a":' * 20 + "1" + "}" * 20 + ", 3]")]
    assert [each["item"] for _, each in made(one, deep)] == [1, 3]
    assert remarks(one, deep) == {"1 explode": {"too_large": 1}}


@pytest.mark.parametrize(
    ("unit", "to", "value", "expected"),
    [
        ("km/h", "m/s", 36, 10),
        ("[degF]", "Cel", 212, 100),
        ("Cel", "K", 0, 273.15),
        ("kW.h", "J", 1, 3.6e6),
        ("psi", "bar", 1, None),
    ],
)
def test_units(unit: str, to: str, value: float, expected: float | None):
    change = {"type": "units", "fields": {"x": {"unit": unit, "to": to}}}
    if expected is None:
        with pytest.raises(ValueError, match="unknown unit"):
            chain(change)
        return
    ((_, fields),) = made(chain(change), [at(0, x=value)])
    assert math.isclose(float(fields["x"]), expected)  # type: ignore[arg-type]


@given(
    FLOATS,
    st.sampled_from(
        [
            (a, b)
            for a, one in UNITS.items()
            for b, other in UNITS.items()
            if one.dimension == other.dimension
        ]
    ),
)
def test_a_unit_there_and_back_is_the_same(value: float, pair: tuple[str, str]):
    there, back = (
        {"type": "units", "fields": {"x": {"unit": a, "to": b}}} for a, b in (pair, pair[::-1])
    )
    ((_, fields),) = made(chain(there, back), [at(0, x=value)])
    assert math.isclose(float(fields["x"]), value, rel_tol=1e-9, abs_tol=1e-6)  # type: ignore[arg-type]


def test_a_text_is_not_converted():
    one = chain({"type": "units", "fields": {"x": {"unit": "m", "to": "km"}}})
    assert made(one, [at(0, x="far"), at(1, y=1)]) == [at(0, x="far"), at(1, y=1)]
    assert remarks(one, [at(0, x="far"), at(1, y=1)]) == {"1 units": {"not_a_number": 1}}


def test_derive_adds_fields_and_null_where_there_is_no_value():
    one = chain({"type": "derive", "fields": {"ratio": "x / y", "x": "x + 1"}})
    assert made(one, [at(0, x=6, y=3), at(1, x=6, y=0)]) == [
        at(0, x=7, y=3, ratio=2),
        at(1, x=7, y=0, ratio=None),
    ]
    assert remarks(one, [at(1, x=6, y=0)]) == {"1 derive": {"null": 1}}


# deadband, rate, smooth


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
    assert xs(made(percent, series(100, 109, 111, 121, 123))) == [100, 111, 123]
    timed = chain({"type": "deadband", "fields": ["x"], "delta": 5, "max_s": 3})
    assert [t for t, _ in made(timed, series(0, 1, 2, 1, 0, 1, 2))] == [T0, T0 + 3000, T0 + 6000]
    plain = chain({"type": "deadband"})
    assert made(plain, [at(0, x=1), at(1, x=1), at(2, x="1"), at(3, x="1", y=1), at(4, x="1")]) == [
        at(0, x=1), at(2, x="1"), at(3, x="1", y=1), at(4, x="1"),
    ]  # fmt: skip
    assert made(plain, [at(9, x=1), at(1, x=1)]) == [at(9, x=1), at(1, x=1)]
    assert remarks(plain, [at(9, x=1), at(1, x=1)]) == {"1 deadband": {"backwards": 1}}


# seen


def test_the_first_reading_of_a_value_goes_on_and_those_that_repeat_it_are_held_back():
    one = chain({"type": "seen", "field": "card"})
    cards = ["a", "b", "a", 1, 1.0, True, None, "b", "c"]
    found = made(one, [at(i, card=card) for i, card in enumerate(cards)])
    assert [fields["card"] for _, fields in found] == ["a", "b", 1, True, "c"]
    assert remarks(one, [at(0, card=None), at(1, x=1)]) == {"1 seen": {"missing": 2}}


def test_each_reading_is_marked_by_whether_its_value_was_seen():
    one = chain({"type": "seen", "field": "card", "mark": "again", "forget_s": 10})
    found = made(one, [at(s, card="a") for s in (0, 5, 14, 40)] + [at(41, x=1)])
    assert [fields.get("again") for _, fields in found] == [False, True, True, False, None]


def test_what_was_seen_is_of_each_key_for_itself():
    one = chain({"type": "seen", "field": "card", "by": "gate"})
    found = made(one, [at(0, gate=g, card="a") for g in ("north", "south", "north", "south")])
    assert [fields["gate"] for _, fields in found] == ["north", "south"]


def test_of_1348_values_ten_times_each_goes_on_once_and_a_new_one_is_rarely_held_back():
    one = chain({"type": "seen", "field": "card", "capacity": 2_000, "error": 0.01})
    came = [at(i, card=f"card {i % 1_348}") for i in range(10 * 1_348)]
    found = [fields["card"] for _, fields in made(one, came)]
    assert len(found) == len(set(found)), "none twice"
    assert len(found) >= 1_348 * 0.97


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"capacity": 9}, "capacity"),
        ({"capacity": 10_001}, "capacity"),
        ({"error": 0.0001}, "error"),
        ({"error": 0.6}, "error"),
        ({"forget_s": 0.5}, "forget_s"),
        ({"mark": "card"}, "the field 'card' exists already"),
        ({"mark": "gate", "by": "gate"}, "the field 'gate' exists already"),
        ({"mark": "t"}, "envelope"),
    ],
)
def test_what_may_not_be_remembered_is_said(wrong: dict[str, object], why: str):
    with pytest.raises(ValueError, match=why):
        chain({"type": "seen", "field": "card", **wrong})


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


@given(st.lists(FLOATS, min_size=1))
def test_median_and_mean_of_the_last_values(values: list[float]):
    for method, oracle in (("median", statistics.median), ("mean", statistics.fmean)):
        out = made(
            chain({"type": "smooth", "fields": ["x"], "method": method, "count": 3}),
            series(*values),
        )
        assert xs(out) == [
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


# windows


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


@given(st.lists(FLOATS), st.sampled_from([(3, 3), (4, 2), (1, 1)]))
def test_windows_by_count_agree_with_python(values: list[float], shape: tuple[int, int]):
    size, every = shape
    out = made(
        chain(
            {
                "type": "window",
                "fields": ["x"],
                "size_count": size,
                "every_count": every,
                "aggregates": ["max"],
            }
        ),
        series(*values),
    )
    ends = [end for end in range(size, len(values) + 1) if end % every == 0]
    assert out == [
        (T0 + (end - 1) * 1000, {"readings": size, "x_max": max(values[end - size : end])})
        for end in ends
    ]


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
    first, *chosen = xs(made(chain({"type": "lttb", "field": "x", "every_s": 4}), series(*values)))
    formed = areas(values, 4, chosen)
    assert (first, len(chosen)) == (values[0], len(formed))
    for area, largest in formed:
        assert area == pytest.approx(largest, rel=1e-9, abs=1e-9)


def test_lttb_keeps_a_peak_that_a_mean_would_flatten():
    values = [0.0] * 10 + [50.0] + [0.0] * 20
    assert 50.0 in xs(made(chain({"type": "lttb", "field": "x", "every_s": 5}), series(*values)))
    assert 50.0 not in xs(
        made(chain({"type": "downsample", "fields": ["x"], "every_s": 5}), series(*values))
    )


def test_a_bucket_that_is_too_full_is_closed_early_and_said():
    one = chain({"type": "lttb", "field": "x", "every_s": 86400})
    given_readings = series(*range(1000), every_s=0.01)
    assert len(made(one, given_readings)) > 2
    assert remarks(one, given_readings)["1 lttb"]["bucket_full"] == 4


# rules


def alerts(out: list[Reading]) -> list[tuple[float, object]]:
    return [((t - T0) / 1000, fields["active"]) for t, fields in out]


def test_a_rule_is_raised_and_cleared_once_with_hysteresis():
    one = chain({"type": "rule", "name": "hot", "when": "x > 80", "clear": "x < 75"})
    out = made(one, series(70, 81, 79, 85, 76, 74, 74, 90))
    assert alerts(out) == [(1, True), (5, False), (7, True)]
    assert out[0] == at(1, rule="hot", active=True, since_ms=T0 + 1000, x=81)


def test_a_rule_waits_until_it_has_held():
    assert alerts(
        made(
            chain({"type": "rule", "name": "hot", "when": "x > 1", "for_s": 2}),
            series(2, 2, 0, 2, 2, 2, 2, 0),
        )
    ) == [
        (5, True),
        (7, False),
    ]
    assert alerts(
        made(
            chain({"type": "rule", "name": "hot", "when": "x > 1", "for_count": 3}),
            series(2, 2, 0, 2, 2, 2),
        )
    ) == [(5, True)]


def test_a_rule_is_not_moved_by_what_it_does_not_know_and_not_fooled_by_a_clock_set_back():
    one = chain({"type": "rule", "name": "hot", "when": "x > 1", "for_s": 10})
    assert alerts(made(one, [at(0, x=2), at(5, y=1), at(6, x="9"), at(10, x=2), at(11, y=0)])) == [
        (10, True)
    ]
    assert alerts(made(one, [at(100, x=2), at(1, x=2), at(10, x=2), at(11, x=2)])) == [(11, True)]


def matches(given_readings: list[Reading], within_ms: int) -> list[int]:
    """Every match of x=1, then x=2, then x=3, by trying all triples; none shares a reading with, or
    begins before the end of, another.
    """
    found, begin = [], 0
    for end, (t, fields) in enumerate(given_readings):
        if fields.get("x") == 3 and any(
            given_readings[one][1].get("x") == 1
            and given_readings[two][1].get("x") == 2
            and t - given_readings[one][0] <= within_ms
            for one in range(begin, end)
            for two in range(one + 1, end)
        ):
            found.append(t)
            begin = end + 1
    return found


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=25))
def test_a_pattern_finds_what_trying_everything_finds(rows: list[tuple[int, int]]):
    t, given_readings = 0.0, []
    for step, value in rows:
        t += step
        given_readings.append(at(t, x=value))
    one = chain(
        {"type": "pattern", "name": "up", "sequence": ["x = 1", "x = 2", "x = 3"], "within_s": 8}
    )
    assert [t for t, _ in made(one, given_readings)] == matches(given_readings, 8000)


# by


def test_each_value_has_a_state_of_its_own_and_names_itself():
    one = chain(
        {"type": "window", "fields": ["x"], "size_count": 2, "aggregates": ["sum"], "by": "k"}
    )
    given_readings = [
        at(0, k="a", x=1),
        at(1, k="b", x=10),
        at(2, x=100),
        at(3, k="a", x=2),
        at(4, k="b", x=20),
        at(5, x=200),
    ]
    assert made(one, given_readings) == [
        at(3, k="a", readings=2, x_sum=3), at(4, k="b", readings=2, x_sum=30),
        at(5, k=None, readings=2, x_sum=300),
    ]  # fmt: skip


def test_the_value_unused_longest_is_forgotten_and_said():
    one = chain({"type": "window", "fields": ["x"], "size_count": 2, "by": "k", "keys_max": 2})
    given_readings = [
        at(0, k=1, x=1),
        at(1, k=2, x=1),
        at(2, k=1.0, x=1),
        at(3, k=3, x=1),
        at(4, k=2, x=1),
        at(5, k="k" * 300, x=1),
    ]
    assert [fields["k"] for _, fields in made(one, given_readings)] == [1.0]
    assert remarks(one, given_readings)["1 window"] == {"key_forgotten": 2, "key_refused": 1}


@settings(max_examples=examples(80))
@given(readings())
def test_what_is_no_number_is_remarked_on(given_readings: list[Reading]):
    one = chain({"type": "window", "fields": ["x"], "size_count": 1000})
    said = remarks(one, given_readings).get("1 window", {})
    assert sum(said.values()) == sum(not is_measured(value) for value in xs(given_readings))


def test_each_condition_of_a_pattern_needs_a_reading_of_its_own():
    one = chain({"type": "pattern", "name": "thrice", "sequence": ["x > 0"] * 4, "within_s": 8})
    assert [t for t, _ in made(one, series(1, 1, 1))] == []
    assert [t for t, _ in made(one, series(1, 1, 1, 1, 1, 1, 1, 1))] == [T0 + 3000, T0 + 7000]
