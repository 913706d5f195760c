"""Many objects at once: what is taken, refused, counted and said is to the reading what it is one
by one.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.edge.intake.intake import BUNDLE_MIN, Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.tables.bundle import Bundle
from edgewake.edge.sources.items import ITEMS_MAX, checked
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.frames.frame import READING_BYTES_MAX, STRING_CHARS_MAX, TIME_MS_MAX
from tests.edge.intake.test_intake import NOW_MS, TEXTS, VALUES, Memory, intake

ODD: tuple[Any, ...] = (
    float("nan"), float("inf"), -float("inf"), 1.7e308, -0.0, 2**63, 2**64, 2**64 - 1, -(2**63) - 1,
    10**400, True, None, "\x00", "ä\ud800",
    "x" * STRING_CHARS_MAX, "x" * (STRING_CHARS_MAX + 1), {}, {"x": 1}, [1], object(), TIME_MS_MAX,
    TIME_MS_MAX + 1, -1, 1.0,
)  # fmt: skip
COLUMNS = (
    st.integers(-(2**63), 2**64 - 1) | st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
    st.text("abä", max_size=9) | st.none(),
    st.booleans(),
    st.none(),
)
"""What a column holds where nothing is odd."""


@st.composite
def bodies(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Objects that are alike, but for a few."""
    columns = {
        name: draw(st.sampled_from(COLUMNS))
        for name in draw(st.sets(st.sampled_from(["a", "b", "c", "d"]), min_size=1))
    }
    if draw(st.booleans()):
        columns["t"] = st.integers(0, TIME_MS_MAX)
    found = draw(
        st.lists(st.fixed_dictionaries(columns), min_size=BUNDLE_MIN - 1, max_size=BUNDLE_MIN + 4)
    )
    for at in draw(st.lists(st.integers(0, len(found) - 1), max_size=2)):
        found[at] = {
            **found[at],
            draw(st.sampled_from([*columns, "t", "e", "c d"])): draw(
                st.sampled_from(ODD) | VALUES | TEXTS
            ),
        }
        if draw(st.booleans()):
            del found[at][draw(st.sampled_from([*found[at]]))]
    return found


def exactly(readings: Any) -> list[tuple[Any, list[tuple[str, type, str]]]]:
    """Readings with their types and in full: 1, 1.0 and True are equal."""
    return [
        (t, [(name, type(value), repr(value)) for name, value in sorted(fields.items())])
        for t, fields in readings
    ]


def check_both(found: list[dict[str, Any]]) -> None:
    at_once, one_by_one = Memory(), Memory()
    many, one = intake(at_once), intake(one_by_one)
    assert exactly(many.check_all(found)) == exactly(
        reading for body in found if (reading := one.check(body)) is not None
    )
    assert (many.refused, at_once.lost) == (one.refused, one_by_one.lost)


@given(bodies())
def test_many_at_once_are_what_they_are_one_by_one(found: list[dict[str, Any]]) -> None:
    check_both(found)


@pytest.mark.parametrize("name", ["t", "speed", "n", "name", "on", "none", "another", "not a name"])
def test_one_odd_value_among_many_is_found_in_every_kind_of_column(name: str) -> None:
    for odd in ODD:
        found = alike(on=True, none=None)
        found[13] |= {name: odd}
        check_both(found)
        check_both([{**body, name: odd} for body in found])


@given(bodies())
def test_many_lines_are_what_they_are_one_by_one(found: list[dict[str, Any]]) -> None:
    """NaN and numbers past 64 bits as orjson writes them, or the line is no JSON at all."""
    lines = [_line(body) for body in found]
    many, one = intake(), intake()
    assert exactly(many.check_lines(lines)) == exactly(
        reading for line in lines if (reading := one.check_line(line)) is not None
    )
    assert many.refused == one.refused


def _line(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError:
        return b'{"v": NaN}'


def alike(**fields: Any) -> list[dict[str, Any]]:
    return [
        {"t": NOW_MS + n, "n": n, "speed": n * 0.5, "name": f"line {n}", **fields}
        for n in range(20)
    ]


@pytest.mark.parametrize(
    "found",
    [
        alike(),
        alike(on=True, none=None, rest=2**64 - 1),
        [
            {name: body[name] for name in (names if n % 2 else reversed(names))}
            for n, body in enumerate(alike())
            if (names := [*body])
        ],
        [{"v": n} for n in range(20)],
        [*alike(v=None)[:10], *alike(v=2.5)[:10]],
    ],
)
def test_objects_that_are_alike_are_a_bundle(found: list[dict[str, Any]]) -> None:
    """Or nothing here was fast."""
    assert isinstance(intake().check_all(found), Bundle)
    assert isinstance(intake().check_lines(list(map(orjson.dumps, found))), Bundle)


def test_one_clock_for_a_bundle_without_times() -> None:
    readings = Intake("test", Memory(), Policy.BLOCK, FakeClock(TIME_MS_MAX + 5)).check_all(
        [{"v": n} for n in range(20)]
    )
    assert [t for t, _ in readings] == [TIME_MS_MAX] * 20


def test_a_line_that_is_no_object_or_too_long_costs_only_itself() -> None:
    one = intake()
    lines = [b'{"v": %d}' % n for n in range(20)]
    for bad in (b"[1]", b"{", b'{"v": "' + b"x" * READING_BYTES_MAX + b'"}', b'{"v":1},{"v":2}'):
        assert len(one.check_lines([*lines, bad])) == 20
    assert one.refused == {"shape": 1, "json": 2, "oversize": 1}


async def test_a_document_is_taken_in_slices_and_not_beyond_its_bound() -> None:
    sink = Memory()
    one = intake(sink)
    items: list[Any] = [{"n": n} for n in range(ITEMS_MAX + 5)]
    items[700], items[2_000] = "odd", {"n": float("nan")}
    await one.put(await checked(one, items))
    assert [fields["n"] for _, fields in sink.readings] == [
        n for n in range(ITEMS_MAX) if n not in (700, 2_000)
    ]
    assert one.refused == Counter(shape=1, json=1, oversize=5)
    assert one.taken == ITEMS_MAX - 2
