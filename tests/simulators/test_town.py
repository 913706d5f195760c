"""The town: connected, named, small as a map."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from edgewake.simulators import town, town_maker
from tests.simulators.plane import to_plane

TOWN = town_maker.make()


def test_degrees_and_metres_undo_each_other():
    lat, lon = town.to_degrees((1234.5, -987.6))
    assert to_plane(lat, lon) == pytest.approx((1234.5, -987.6))


def test_a_degree_of_latitude_is_as_long_as_on_the_ellipsoid():
    """111.27 km at 53.2° north, WGS 84; a degree of longitude 66.86 km."""
    assert to_plane(town.ORIGIN_LAT + 1, town.ORIGIN_LON)[1] == pytest.approx(111_275, abs=20)
    assert to_plane(town.ORIGIN_LAT, town.ORIGIN_LON + 1)[0] == pytest.approx(66_850, abs=40)


def test_the_map_is_the_same_each_time_and_small():
    first = json.dumps(town.geojson(TOWN), separators=(",", ":"))
    town_maker.make.cache_clear()
    assert json.dumps(town.geojson(town_maker.make()), separators=(",", ":")) == first
    assert len(first) < 200_000


def test_the_map_has_roads_with_name_and_class_river_and_parks():
    features = town.geojson(TOWN)["features"]
    assert {feature["properties"]["kind"] for feature in features} == {
        "sea",
        "river",
        "park",
        "road",
        "station",
    }
    roads = [
        feature["properties"] for feature in features if feature["properties"]["kind"] == "road"
    ]
    assert all(road["name"] and road["class"] in {"ring", "main", "street"} for road in roads)


def test_polygons_of_the_map_are_closed_and_counter_clockwise():
    """RFC 7946, section 3.1.6."""
    for feature in town.geojson(TOWN)["features"]:
        if feature["geometry"]["type"] == "Polygon":
            (ring,) = feature["geometry"]["coordinates"]
            assert ring[0] == ring[-1]
            assert sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairwise(ring)) > 0
