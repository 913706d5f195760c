"""Keys rule out no event that passes: they only save the trying."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgewake.cloud.log.filters.filter import compile_node
from edgewake.cloud.log.filters.filter_geo import is_place
from edgewake.cloud.log.filters.filter_keys import Key, Keys, Places, keys_of
from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.protocol.errors import FilterError

FIELDS = ("a", "s", "lat", "lon")
WORDS = ("", "a", "A", "ab", "a%", "a_c", "é", "e\u0301", "车-7", "\U0001f600", "x\x00y")
NUMBERS = (0, 1, -1, 0.0, -0.0, 0.5, 90, -90, 180, -180, 1e308, 2**53, 2**53 + 1, float(2**53))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


literals = (
    st.sampled_from(WORDS).map(quoted)
    | st.sampled_from(NUMBERS).map(lambda number: f"({number})" if number < 0 else str(number))
    | st.sampled_from(["TRUE", "FALSE", "NULL"])
)
fields = st.sampled_from(FIELDS)
patterns = st.text("aAb%_é\\", max_size=4).map(quoted)
degrees = st.sampled_from(["-90", "-89.999", "0", "0.001", "45", "89.999", "90"])
easts = st.sampled_from(["-180", "-179.999", "0", "0.001", "179.999", "180"])
metres = st.sampled_from(["0", "1", "200", "20000", "10100000", "20015115", "1e9"])
conditions = st.recursive(
    st.tuples(fields, literals).map(" = ".join)
    | st.tuples(literals, fields).map(" = ".join)
    | st.tuples(fields, st.lists(literals, min_size=1, max_size=3)).map(
        lambda t: f"{t[0]} IN ({', '.join(t[1])})"
    )
    | st.tuples(fields, patterns).map(" LIKE ".join)
    | st.tuples(fields, st.sampled_from(WORDS).map(quoted)).map(
        lambda t: f"starts_with({t[0]}, {t[1]})"
    )
    | st.tuples(fields, st.sampled_from(["IS TRUE", "IS FALSE", "IS NULL", "IS NOT NULL"])).map(
        " ".join
    )
    | fields
    | st.tuples(degrees, easts, degrees, easts).map(
        lambda t: f"in_box(lat, lon, {t[0]}, {t[1]}, {t[2]}, {t[3]})"
    )
    | st.tuples(degrees, easts, st.sampled_from(["<", "<="]), metres).map(
        lambda t: f"distance_m(lat, lon, {t[0]}, {t[1]}) {t[2]} {t[3]}"
    ),
    lambda inner: (
        st.tuples(inner, st.sampled_from([" AND ", " OR "]), inner).map(
            lambda t: f"({t[0]}){t[1]}({t[2]})"
        )
        | inner.map(lambda one: f"NOT ({one})")
    ),
    max_leaves=5,
)
values = st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(WORDS)
rows = st.fixed_dictionaries(
    {},
    optional={
        "a": values,
        "s": values,
        "lat": values | st.floats(-90, 90),
        "lon": values | st.floats(-180, 180),
    },
)


def admits(keys: Key, row: dict[str, Any]) -> bool:
    """As the index looks: by the field's value, how it begins, or the box that it is in."""
    if isinstance(keys, Places):
        lat: Any = row.get(keys.lat)
        lon: Any = row.get(keys.lon)
        return is_place(lat, lon) and any(
            box.south <= lat <= box.north and box.west <= lon <= box.east for box in keys.boxes
        )
    value = row.get(keys.field)
    return value in keys.values or (
        isinstance(value, str) and any(map(value.startswith, keys.prefixes))
    )


@given(conditions, rows)
@example("a = 1", {"a": True})
@example("a IS TRUE", {"a": 1})
@example("a = 0.0", {"a": -0.0})
@example("s LIKE 'a\\%'", {"s": "a%"})
@example("a IN (NULL)", {"a": None})
@example("a = 9007199254740993", {"a": float(2**53)})
@example("a = 9007199254740992.0", {"a": 2**53 + 1})
def test_what_passes_a_condition_is_admitted_by_its_keys(where: str, row: dict[str, Any]) -> None:
    try:
        tree = parse_where(where)
        passes = compile_node(tree)
    except FilterError:
        return
    keys = keys_of(tree, None)
    if keys is not None and passes(row) is True:
        assert admits(keys, row), keys


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("s = 'x'", Keys("s", frozenset(["x"]))),
        ("s = 'x' AND s IN ('x', 'y')", Keys("s", frozenset(["x"]))),
        ("s = 'x' AND s = 'y'", Keys("s", frozenset())),
        ("s = 'x' OR s LIKE 'y%'", Keys("s", frozenset(["x"]), frozenset(["y"]))),
        ("s IN ('x', NULL)", Keys("s", frozenset(["x"]))),
        ("s LIKE 'x'", Keys("s", frozenset(["x"]))),
        ("s = 'x' OR a = 1", None),
        ("NOT s = 'x'", None),
        ("s LIKE '%'", None),
        ("starts_with(s, '')", None),
        ("device IN ('x', NULL)", None),
        ("device = NULL", None),
        ("device IS TRUE", None),
        ("s = 'x' OR NOT a", None),
    ],
)
def test_the_keys_of_a_condition(where: str, expected: Key | None) -> None:
    assert keys_of(parse_where(where), None) == expected


def test_devices_that_are_asked_for_meet_those_of_the_condition() -> None:
    where = parse_where("device IN ('x', 'y')")
    assert keys_of(where, None, frozenset(["y", "z"])) == Keys("device", frozenset(["y"]))
    assert keys_of(where, None, frozenset()) == Keys("device", frozenset())
    assert keys_of(None, None, frozenset(["ü"])) == Keys("device", frozenset(["ü"]))
    assert keys_of(None, None, None) is None


@given(
    st.floats(-90, 90),
    st.floats(-180, 180),
    st.floats(-90, 90),
    st.floats(-180, 180),
    st.floats(0, 2.1e7),
)
@example(90.0, 0.0, 89.0, 180.0, 120_000.0)
@example(0.0, 180.0, 0.0, -180.0, 0.0)
@example(0.0, -180.0, 0.0, 180.0, 0.0)
def test_a_place_that_is_near_enough_is_in_one_of_the_boxes(
    lat: float, lon: float, north: float, east: float, far: float
) -> None:
    where = parse_where(f"distance_m(lat, lon, {north:.17f}, {east:.17f}) <= {far:.9f}")
    keys = keys_of(where, None)
    row = {"lat": lat, "lon": lon}
    assert not math.isnan(lat)
    if keys is not None and compile_node(where)(row) is True:
        assert admits(keys, row), keys
