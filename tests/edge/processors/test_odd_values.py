"""Each processor at its bounds and given what it did not expect: values of another type, times that
stand still or go back, keys that look alike.
"""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.chain import decode_state
from edgewake.edge.processors.operators.keyed import KEY_CHARS_MAX
from edgewake.edge.processors.operators.lttb import BUCKET_CHARS_MAX, BUCKET_READINGS_MAX
from edgewake.edge.processors.processor import NUMBER_MAX
from edgewake.protocol.frames.frame import FIELDS_MAX, STRING_CHARS_MAX, TIME_MS_MAX
from tests.edge.processors.helpers import at, chain, made, readings, remarks, series
from tests.examples import examples


def values(found: list[Reading], name: str = "x") -> list[object]:
    return [fields.get(name) for _, fields in found]


def said(processor: dict[str, Any], given_readings: list[Reading]) -> dict[str, int]:
    """What one processor remarks on."""
    found = remarks(chain(processor), given_readings)
    return next(iter(found.values()), {})


# deadband


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
    assert values(found) == ([last, now] if goes_on else [last])


@pytest.mark.parametrize(("seconds", "goes_on"), [(9.999, False), (10, True), (11, True)])
def test_after_its_longest_time_a_reading_goes_on_in_any_case(
    seconds: float, goes_on: bool
) -> None:
    found = made(
        chain({"type": "deadband", "delta": 99, "max_s": 10}), [at(0, x=1), at(seconds, x=1)]
    )
    assert len(found) == 1 + goes_on


def test_a_drift_goes_on_when_it_has_left_the_band_of_what_went_on_last() -> None:
    assert values(made(chain({"type": "deadband", "delta": 1}), series(0, 0.6, 1.2, 1.8, 2.4))) == [
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


# rate


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
    assert values(made(chain(processor), given_readings), "x_rate") == expected
    assert said(processor, given_readings) == remark


@pytest.mark.parametrize(("now", "expected"), [(9, None), (10, 0.0), (11, 3_600.0)])
def test_a_counter_that_falls_has_begun_anew_and_one_that_stands_has_not(
    now: int, expected: float | None
) -> None:
    processor = {"type": "rate", "field": "x", "counter": True, "per_s": 3600, "name": "per_hour"}
    given_readings = [at(0, x=10), at(1, x=now)]
    assert values(made(chain(processor), given_readings), "per_hour")[1] == expected
    assert said(processor, given_readings).get("restarted", 0) == (expected is None)


# smoothing


def test_after_one_half_life_half_of_a_step_is_there_and_after_two_three_quarters() -> None:
    found = values(
        made(
            chain({"type": "smooth", "fields": ["x"], "half_life_s": 10}),
            [at(0, x=0), at(10, x=8), at(20, x=8)],
        )
    )
    assert found == pytest.approx([0, 4, 6])


def test_where_the_time_goes_back_no_time_has_passed_for_that_one_reading() -> None:
    processor = {"type": "smooth", "fields": ["x"], "half_life_s": 10}
    given_readings = [at(20, x=0), at(10, x=8), at(20, x=8)]
    assert values(made(chain(processor), given_readings)) == pytest.approx([0, 0, 4])
    assert said(processor, given_readings) == {"backwards": 1}


def test_after_any_time_a_smoothed_value_is_the_value() -> None:
    assert values(
        made(
            chain({"type": "smooth", "fields": ["x"], "half_life_s": 0.001}),
            [at(0, x=1), at(10**9, x=7)],
        )
    ) == [1, 7]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30), st.integers(2, 7))
def test_mean_and_median_are_of_the_last_values_and_no_more(numbers: list[int], count: int) -> None:
    for method in ("mean", "median"):
        found = values(
            made(
                chain({"type": "smooth", "fields": ["x"], "method": method, "count": count}),
                series(*numbers),
            )
        )
        for place, value in enumerate(found):
            last = sorted(numbers[max(0, place + 1 - count) : place + 1])
            middle = (last[(len(last) - 1) // 2] + last[len(last) // 2]) / 2
            assert value == pytest.approx(sum(last) / len(last) if method == "mean" else middle)


def test_what_is_no_number_goes_on_as_it_is_and_is_in_no_mean() -> None:
    found = made(
        chain({"type": "smooth", "fields": ["x", "y"], "method": "mean", "count": 2}),
        [at(0, x=2), at(1, x="off", y=None), at(2, x=4)],
    )
    assert [dict(fields) for _, fields in found] == [
        {"x": 2.0},
        {"x": "off", "y": None},
        {"x": 3.0},
    ]


# keys


KEYS = [1, "1", True, "true", None, "null", 1.5, "1.5", "", "Ä", 2**60, -1]


def test_each_key_has_a_state_of_its_own_also_where_they_look_alike() -> None:
    one = chain({"type": "rate", "field": "x", "by": "k"})
    found = made(
        one,
        [
            at(second, k=key, x=place * second)
            for second in range(3)
            for place, key in enumerate(KEYS)
        ],
    )
    for place, key in enumerate(KEYS):
        rates = [
            fields["x_rate"]
            for _, fields in found
            if fields["k"] is key or (fields["k"] == key and type(fields["k"]) is type(key))
        ]
        assert rates == [None, place, place]


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (0, -0.0), (2**52, float(2**52))])
def test_a_number_is_one_key_however_it_is_written(one: float, other: float) -> None:
    found = made(
        chain({"type": "rate", "field": "x", "by": "k"}), [at(0, k=one, x=1), at(1, k=other, x=3)]
    )
    assert values(found, "x_rate") == [None, 2.0]


@pytest.mark.parametrize(("length", "is_kept"), [(KEY_CHARS_MAX, True), (KEY_CHARS_MAX + 1, False)])
def test_a_key_has_its_longest(length: int, is_kept: bool) -> None:
    processor = {"type": "rate", "field": "x", "by": "k"}
    given_readings = [at(0, k="k" * length, x=1)]
    assert len(made(chain(processor), given_readings)) == is_kept
    assert said(processor, given_readings) == ({} if is_kept else {"key_refused": 1})


@pytest.mark.parametrize(("keys", "rate_of_first"), [(3, 1.0), (4, None)])
def test_at_the_bound_of_keys_the_one_unused_longest_is_forgotten(
    keys: int, rate_of_first: float | None
) -> None:
    processor = {"type": "rate", "field": "x", "by": "k", "keys_max": 3}
    given_readings = [*[at(0, k=key, x=0) for key in range(keys)], at(1, k=0, x=1)]
    assert values(made(chain(processor), given_readings), "x_rate")[-1] == rate_of_first
    assert said(processor, given_readings) == ({} if rate_of_first else {"key_forgotten": 2})


# the shape of a curve


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


# what is made


@pytest.mark.parametrize(
    ("t", "expected"),
    [(0, 0), (TIME_MS_MAX, TIME_MS_MAX), (TIME_MS_MAX + 1, TIME_MS_MAX), (-1, 0)],
    ids=["1970", "the last", "after it", "before"],
)
def test_what_is_made_has_a_time_that_a_reading_may_have(t: int, expected: int) -> None:
    assert made(chain({"type": "select"}), [(t, {"x": 1})]) == [(expected, {"x": 1})]


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({f"f{n}": 1 for n in range(FIELDS_MAX)}, True),
        ({f"f{n}": 1 for n in range(FIELDS_MAX + 1)}, False),
        ({"x": "x" * STRING_CHARS_MAX}, True), ({"x": "x" * (STRING_CHARS_MAX + 1)}, False),
    ],
    ids=["as many fields as may be", "one more", "as long a text", "one character more"],
)  # fmt: skip
def test_what_is_made_is_as_large_as_a_reading_may_be(fields: dict[str, Any], fits: bool) -> None:
    processor = {"type": "select"}
    assert len(made(chain(processor), [(1, fields)])) == fits
    assert said(processor, [(1, fields)]) == ({} if fits else {"too_large": 1})


@given(
    readings(),
    st.sampled_from(
        [
            "exp(x * 1000)",
            "x / y",
            "pow(x, 1000)",
            "ln(x - 5)",
            "sqrt(x)",
            "x % y",
            "upper(k)",
            "if(x > 0, x, 'none')",
        ]
    ),
)
@settings(max_examples=examples(40))
def test_what_is_derived_is_a_value_that_the_log_can_write(
    given_readings: list[Reading], text: str
) -> None:
    for _, fields in made(chain({"type": "derive", "fields": {"made": text}}), given_readings):
        value = fields["made"]
        assert value is None or isinstance(value, str | int | float)
        assert not isinstance(value, float) or math.isfinite(value)
        orjson.dumps(fields)


# kept states


@given(st.binary(max_size=60))
def test_any_bytes_are_a_state_or_none(body: bytes) -> None:
    decode_state(body)
    one = chain({"type": "rate", "field": "x"})
    assert made(one, [at(0, x=1)]) == list(one.apply(one.resume(body), [at(0, x=1)]).readings)


@pytest.mark.parametrize(
    "change",
    [
        {"states": []},
        {"states": None},
        {"states": [None, None]},
        {"remarks": []},
        {"remarks": 7},
        {"states": "x"},
        {"digest": "other"},
    ],
)
def test_a_state_of_another_shape_begins_anew(change: dict[str, Any]) -> None:
    one = chain({"type": "rate", "field": "x"})
    kept = orjson.loads(one.apply(one.begin(), [at(0, x=1)]).state.encode()) | change
    assert one.resume(orjson.dumps(kept)) == one.begin()


def test_a_state_whose_part_is_of_another_shape_costs_readings_and_no_chain() -> None:
    """Each of them is remarked on."""
    one = chain({"type": "rate", "field": "x"})
    kept = orjson.loads(one.begin().encode()) | {"states": [["odd"]]}
    applied = one.apply(one.resume(orjson.dumps(kept)), series(1, 2, 3))
    assert (list(applied.readings), one.counts(applied.state)["remarks"]) == (
        [],
        {"1 rate": {"failed": 3}},
    )


@pytest.mark.parametrize("bytes_max", [0, 100, 150, 200, 10_000])
def test_what_is_forgotten_ends_with_the_state_of_the_beginning_whatever_the_bound(
    bytes_max: int,
) -> None:
    """Also where what begins is larger than what another processor remembers."""
    one = chain(
        {"type": "window", "fields": ["x"], "size_count": 5},
        {"type": "rate", "field": "x_mean"},
        {"type": "deadband"},
    )
    state = one.apply(one.begin(), series(*range(12))).state
    kept, body = one.kept(state, bytes_max)
    assert len(body) <= bytes_max or kept.states == one.begin().states
    assert body == kept.encode()
    assert (kept == state) == (len(state.encode()) <= bytes_max)
