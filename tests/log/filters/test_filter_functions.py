"""Functions of places, words and objects: against plain evaluation, by themselves and through the
index; and what is wrong is said with its place.
"""

from __future__ import annotations

import json
import math
import unicodedata
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.filters.filter import compile_select, compile_where
from edgewake.cloud.log.filters.filter_geo import EARTH_RADIUS_M, around, distance_m, polygon
from edgewake.cloud.log.filters.filter_keys import Places, keys_of
from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.cloud.log.filters.filter_words import fold
from edgewake.cloud.log.following.event_index import EventIndex
from edgewake.protocol.errors import FilterError
from tests.examples import examples

lats = st.floats(-90, 90).map(lambda x: round(x, 4)) | st.sampled_from([-90.0, 90.0, 0.0, 52, 89.9])
lons = st.floats(-180, 180).map(lambda x: round(x, 4)) | st.sampled_from([-180.0, 180.0, 0, 179.9])
near = st.tuples(st.floats(-0.02, 0.02), st.floats(-0.02, 0.02))


def clamp(value: float, most: float) -> float:
    return max(-most, min(most, value))


def chord_m(lat: float, lon: float, to_lat: float, to_lon: float) -> float:
    """The distance by way of the chord through the earth, which has no haversine in it."""

    def point(north: float, east: float) -> tuple[float, float, float]:
        a, b = math.radians(north), math.radians(east)
        return math.cos(a) * math.cos(b), math.cos(a) * math.sin(b), math.sin(a)

    chord = math.dist(point(lat, lon), point(to_lat, to_lon))
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, chord / 2))


@given(lats, lons, lats, lons)
@settings(max_examples=examples(300))
def test_a_distance_is_that_along_a_great_circle(a: float, b: float, c: float, d: float) -> None:
    assert distance_m(a, b, c, d) == pytest.approx(chord_m(a, b, c, d), rel=1e-6, abs=2)


@given(
    lats, lons, lats, lons, near, st.sampled_from([0, 1, 50, 1500, 2e5, 9e6, 2.1e7]), st.booleans()
)
@settings(max_examples=examples(600))
@example(89.9, 0.0, 89.95, 179.0, (0.0, 0.0), 2e5, False)
@example(0.0, 179.9, 0.0, -179.9, (0.0, 0.0), 9e6, False)
def test_whoever_is_near_is_found_by_the_index(
    lat: float, lon: float, at_lat: float, at_lon: float, off: Any, metres: float, is_near: bool
) -> None:
    """Also over the antimeridian, and with a pole in it."""
    if is_near:
        at_lat, at_lon = clamp(lat + off[0], 90), clamp(lon + off[1], 180)
    where = f"distance_m(lat, lon, {lat}, {lon}) <= {metres:.0f}"
    passes = compile_where(where).passes({"lat": at_lat, "lon": at_lon})
    assert passes is (distance_m(at_lat, at_lon, lat, lon) <= metres)
    assert passes <= is_found(where, {"lat": at_lat, "lon": at_lon})
    assert all(-90 <= box.south <= box.north <= 90 for box in around(lat, lon, metres))


def is_found(where: str, fields: dict[str, Any]) -> bool:
    """Does the index find a reader by the values of an event?"""
    keys = keys_of(parse_where(where), None)
    assert isinstance(keys, Places)
    index: EventIndex[str] = EventIndex()
    assert index.add("reader", keys)
    found = list(index.find(Event(DATA, fields, orjson.dumps(fields))))
    index.remove("reader", keys)
    assert not index
    assert not index._by_field
    assert not index._sizes
    return bool(found)


@given(lats, lons, lats, lons, lats, lons)
@settings(max_examples=examples(500))
def test_a_box_holds_what_is_between_its_sides(
    south: float, west: float, north: float, east: float, lat: float, lon: float
) -> None:
    south, north = sorted((south, north))
    where = f"in_box(lat, lon, {south}, {west}, {north}, {east})"
    between = west <= lon <= east if west <= east else lon >= west or lon <= east
    fields = {"lat": lat, "lon": lon}
    assert compile_where(where).passes(fields) is (south <= lat <= north and between)
    assert compile_where(where).passes(fields) <= is_found(where, fields)


def winding(corners: list[tuple[float, float]], lat: float, lon: float) -> bool:
    """Is a place inside? By how often the border goes round it, and not by crossings."""
    turned = 0.0
    for (a, b), (c, d) in pairwise([*corners, corners[0]]):
        one, two = math.atan2(a - lat, b - lon), math.atan2(c - lat, d - lon)
        step = two - one
        turned += step - 2 * math.pi * round(step / (2 * math.pi))
    return round(turned / (2 * math.pi)) != 0


@given(
    st.lists(st.integers(0, 359), min_size=3, max_size=12, unique=True),
    st.integers(-80, 80),
    st.integers(-150, 150),
    st.floats(-12, 12),
    st.floats(-12, 12),
)
@settings(max_examples=examples(400))
def test_a_polygon_holds_what_its_border_goes_round(
    angles: list[int], lat: int, lon: int, up: float, right: float
) -> None:
    """Stars of any number of corners, at any place."""
    corners = [
        (lat + (4 + n % 3 * 2) * math.sin(math.radians(a)), lon + 8 * math.cos(math.radians(a)))
        for n, a in enumerate(sorted(angles))
    ]
    text = ", ".join(f"{east!r} {north!r}" for north, east in corners)
    at = lat + up, lon + right
    where = f"in_polygon(lat, lon, 'POLYGON(({text}))')"
    fields = {"lat": clamp(at[0], 90), "lon": at[1]}
    inside = winding(corners, fields["lat"], fields["lon"])
    assert compile_where(where).passes(fields) is inside
    assert inside <= is_found(where, fields)


def test_a_hole_is_not_in_a_polygon() -> None:
    found = polygon("POLYGON((0 0, 10 0, 10 10, 0 10, 0 0), (4 4, 6 4, 6 6, 4 6))")
    assert [found.holds(*at) for at in ((5, 5), (5, 1), (1, 5), (20, 5))] == [
        False, True, True, False,
    ]  # fmt: skip


@pytest.mark.parametrize("lat", [91, -90.1, "52", True, None, [], 1e300])
def test_what_is_no_place_is_null(lat: Any) -> None:
    for where in (
        "distance_m(lat, lon, 0, 0) >= 0",
        "NOT in_box(lat, lon, 0, 0, 1, 1)",
        "NOT in_polygon(lat, lon, 'POLYGON((0 0, 1 0, 1 1))')",
    ):
        assert not compile_where(where).passes({"lat": lat, "lon": 0})


words = st.text("aàAáßsſé éÉ0_.-ﬁİ語", min_size=1, max_size=6)


def plain_fold(text: str) -> str:
    """As Unicode says: letter by letter, without a table."""
    parts = (unicodedata.normalize("NFKD", one.casefold()) for one in text)
    return "".join(
        one for part in parts for one in part if not unicodedata.combining(one)
    ).casefold()


@given(st.text(max_size=60) | words)
@settings(max_examples=examples(500))
def test_case_and_marks_do_not_count(text: str) -> None:
    basic = "".join(one for one in text if ord(one) < 0x10000)
    assert fold(basic) == plain_fold(basic)


@given(st.lists(st.sampled_from(["Brake", "FLUID", "tyré", "Straße", "ok"]), max_size=5), st.data())
@settings(max_examples=examples(200))
def test_words_are_found_whole_all_or_one_of_them(said: list[str], data: st.DataObject) -> None:
    sought = data.draw(
        st.lists(st.sampled_from(["brake", "fluid", "tyre", "strasse", "flu*"]), min_size=1)
    )
    note = {"note": ", ".join(said) + "."}
    folded = list(map(plain_fold, said))
    have = [
        any(word.startswith(one[:-1]) if one[-1] == "*" else word == one for word in folded)
        for one in sought
    ]
    text = " ".join(sought)
    assert compile_where(f"has_words(note, '{text}')").passes(note) is all(have)
    assert compile_where(f"has_any_word(note, '{text}')").passes(note) is any(have)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab'", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b c", "d"]), inner)
    ),
    max_leaves=8,
)
steps = st.lists(st.sampled_from(["a", "b c", "d", 0, 1, -1]), min_size=1, max_size=4)


@given(json_values, steps)
@settings(max_examples=examples(400))
def test_a_path_leads_where_python_goes(value: Any, path: list[str | int]) -> None:
    """In an object and in its text."""
    at: Any = value if isinstance(value, dict | list) else None
    for step in path:
        try:
            at = at[step] if isinstance(at, dict if isinstance(step, str) else list) else None
        except (KeyError, IndexError):
            at = None
    text = "$" + "".join(f"[{s}]" if isinstance(s, int) else f'["{s}"]' for s in path)
    select = compile_select(f"json_value(x, '{text}') AS found")
    if not isinstance(value, str):
        assert select.project({"x": value}) == {"found": at}
    assert select.project({"x": json.dumps(value)}) == {"found": at}
    assert select.project({"x": "{" + json.dumps(value)}) == {"found": None}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("n = 1 AND distance_m(lat, lon, 95, 1) < 5", "at character 11: latitude 95"),
        ("in_box(lat, lon, 5, 1, 2, 3)", "south 5 is north of 2"),
        ("in_box(lat, lon, 5, 1)", "expected in_box(lat, lon, SOUTH, WEST, NORTH, EAST)"),
        ("in_box(lat, lon, 1, 2, n, 3)", "'n' at character 24: expected a number here"),
        ("in_polygon(lat, lon, 'POLYGON((1 2, 3 x, 5 6))')", "at character 14, point 2 '3 x'"),
        ("in_polygon(lat, lon, 'POLYGON((1 2, 3 95, 5 6))')", "the longitude comes first"),
        ("in_polygon(lat, lon, 'POLYGON((1 2, 3 4))')", "three different points"),
        ("in_polygon(lat, lon, 'POLYGON((-170 2, 170 4, 5 6))')", "at the antimeridian"),
        ("in_polygon(lat, lon, 'CIRCLE(1 2)')", "expected WKT"),
        ("has_words(note, 'a & b')", "'&': expected words"),
        ("has_words(note, '  ')", "expected a word"),
        (
            f"has_words(note, '{' '.join(f'w{n}' for n in range(21))}')",
            "21 words, expected at most",
        ),
        ("json_value(x, 'a.b') = 1", "at character 1 of the path: expected $"),
        ("json_value(x, '$.a..b') = 1", "at character 4 of the path, '..b'"),
        (f"json_value(x, '${'.a' * 11}') = 1", "11 steps, expected 1 to 10"),
        ("device IN SET('No such')", "expected SET with a name"),
        ("device IN SET('north')", "there are no named sets here"),
        ("device IN ('a', 'b', 'c') AND distance_m(lat, lon, 'x', 1) < 5", "at character 52"),
        (
            " AND ".join("has_words(note, 'a')" for _ in range(3)),
            "costs 13508 steps",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(where: str, said: str) -> None:
    with pytest.raises(FilterError) as refused:
        compile_where(where)
    assert said in str(refused.value)


def test_polygons_have_bounds() -> None:
    points = ", ".join(f"{n / 10} {n % 7}" for n in range(501))
    with pytest.raises(FilterError, match="more than 500 points"):
        compile_where(f"in_polygon(lat, lon, 'POLYGON(({points}))')")
    long = " OR ".join(
        f"in_polygon(lat, lon, 'POLYGON((0 0, 1 1, 1 0{' ' * 5000}))')" for _ in range(5)
    )
    with pytest.raises(FilterError, match=r"polygons of 2\d{4} bytes, expected at most 20480"):
        compile_where(long)
