"""Places in filters: distances, boxes and polygons."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.filters.filter import compile_where
from edgewake.cloud.log.filters.filter_geo import EARTH_RADIUS_M, around, distance_m, polygon
from edgewake.cloud.log.filters.filter_keys import Places, keys_of
from edgewake.cloud.log.filters.filter_syntax import parse_where
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


def test_polygons_have_bounds() -> None:
    points = ", ".join(f"{n / 10} {n % 7}" for n in range(501))
    with pytest.raises(FilterError, match="more than 500 points"):
        compile_where(f"in_polygon(lat, lon, 'POLYGON(({points}))')")
    long = " OR ".join(
        f"in_polygon(lat, lon, 'POLYGON((0 0, 1 1, 1 0{' ' * 5000}))')" for _ in range(5)
    )
    with pytest.raises(FilterError, match=r"polygons of 2\d{4} bytes, expected at most 20480"):
        compile_where(long)
