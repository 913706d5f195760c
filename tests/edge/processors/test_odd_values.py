"""What chains make and keep, at its bounds: values that no log can write, odd states."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.chain import decode_state
from edgewake.protocol.frames.frame import FIELDS_MAX, STRING_CHARS_MAX, TIME_MS_MAX
from tests.edge.processors.helpers import at, chain, made, readings, said, series
from tests.examples import examples

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
