"""Places in filters: distance in metres, boxes and polygons. Pure.

Latitudes and longitudes are WGS 84 degrees, -90 to 90 and -180 to 180; a place out of range, or
with text for a number, is NULL. Distances are along great circles of a sphere of EARTH_RADIUS_M
(haversine), half a percent off at most. A box with `west` > `east` passes the antimeridian. A
polygon is WKT (`POLYGON((lon lat, …), (hole …))`, as maps give it, longitude first), its edges are
straight lines of degrees, and it may not pass the antimeridian: cut it in two there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

EARTH_RADIUS_M: Final = 6_371_008.8
"""The mean radius of WGS 84's ellipsoid, metres."""
POLYGON_POINTS_MAX: Final = 500
"""Corners of a polygon, its holes' among them: some 40 µs an event. Over it: refused."""
POLYGON_BYTES_MAX: Final = 20 * 1024
"""UTF-8 bytes of the polygons of one condition. Over it: refused."""
POLYGONS_KEPT: Final = 256
"""Polygons that were read and are kept for who uses them again."""
_SLACK: Final = 1e-9
"""What a box around a circle is wider than it, relative: the rounding of its own computation."""
_NUMBER: Final = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_WKT: Final = re.compile(r"\s*POLYGON\s*\((.*)\)\s*", re.IGNORECASE | re.DOTALL)
_RING: Final = re.compile(r"\s*\(([^()]*)\)\s*(,|$)")
_POINT: Final = re.compile(rf"\s*({_NUMBER})\s+({_NUMBER})\s*")

Point: TypeAlias = tuple[float, float]
"""(latitude, longitude), degrees."""


@dataclass(frozen=True, slots=True)
class Box:
    """South <= latitude <= north and west <= longitude <= east."""

    south: float
    west: float
    north: float
    east: float


def is_place(lat: object, lon: object) -> bool:
    """Are these the degrees of a place?"""
    return (
        type(lat) in (int, float)
        and type(lon) in (int, float)
        and -90 <= lat <= 90  # type: ignore[operator]
        and -180 <= lon <= 180  # type: ignore[operator]
    )


def check_place(lat: float, lon: float) -> None:
    """Raises ValueError for degrees that are no place."""
    if not -90 <= lat <= 90:
        raise ValueError(f"latitude {lat:g}: expected -90 to 90 degrees")
    if not -180 <= lon <= 180:
        raise ValueError(f"longitude {lon:g}: expected -180 to 180 degrees")


def distance_m(lat: float, lon: float, to_lat: float, to_lon: float) -> float:
    """Metres between two places (haversine)."""
    north, south = math.radians(lat), math.radians(to_lat)
    across = math.sin(math.radians(to_lon - lon) / 2)
    along = math.sin((south - north) / 2)
    part = along * along + math.cos(north) * math.cos(south) * across * across
    return 2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(part)))


def boxes_of(south: float, west: float, north: float, east: float) -> tuple[Box, ...]:
    """A box as one, or where it passes the antimeridian as two; raises ValueError."""
    check_place(south, west)
    check_place(north, east)
    if south > north:
        raise ValueError(
            f"south {south:g} is north of {north:g}: expected south, west, north, east"
        )
    if west <= east:
        return (Box(south, west, north, east),)
    return Box(south, west, north, 180.0), Box(south, -180.0, north, east)


def around(lat: float, lon: float, metres: float) -> tuple[Box, ...]:
    """Boxes that hold all places not further than `metres` from one; none where there are none."""
    if metres < 0:
        return ()
    angle = metres / EARTH_RADIUS_M * (1 + _SLACK) + _SLACK
    reach = math.degrees(angle)
    south, north = lat - reach, lat + reach
    if angle >= math.pi / 2 or south <= -90 or north >= 90:  # a pole is in it
        return (Box(max(-90.0, south), -180.0, min(90.0, north), 180.0),)
    across = math.degrees(math.asin(min(1.0, math.sin(angle) / math.cos(math.radians(lat)))))
    across = across * (1 + _SLACK) + _SLACK
    west, east = lon - across, lon + across
    if east - west >= 360:
        return (Box(south, -180.0, north, 180.0),)
    if west < -180:
        return Box(south, west + 360, north, 180.0), Box(south, -180.0, north, east)
    if east > 180:
        return Box(south, west, north, 180.0), Box(south, -180.0, north, east - 360)
    return (Box(south, west, north, east),)


class Polygon:
    """A polygon with holes; made by `polygon`."""

    def __init__(self, rings: Sequence[Sequence[Point]]) -> None:
        corners = [corner for ring in rings for corner in ring]
        lats, lons = [lat for lat, _ in corners], [lon for _, lon in corners]
        self.box = Box(min(lats), min(lons), max(lats), max(lons))
        """Around it."""
        self.points = len(corners)
        self._edges = [(*a, *b) for ring in rings for a, b in pairwise(ring)]

    def holds(self, lat: float, lon: float) -> bool:
        """Is a place inside?

        Counts the edges that a line to the east crosses: an odd number means inside. A place on an
        edge that two polygons share is inside exactly one of them.
        """
        box = self.box
        if not (box.south <= lat <= box.north and box.west <= lon <= box.east):
            return False
        inside = False
        for a_lat, a_lon, b_lat, b_lon in self._edges:
            if (a_lat > lat) != (b_lat > lat) and lon < a_lon + (lat - a_lat) * (b_lon - a_lon) / (
                b_lat - a_lat
            ):
                inside = not inside
        return inside


@lru_cache(POLYGONS_KEPT)
def polygon(text: str) -> Polygon:
    """A polygon of WKT; raises ValueError, which says which point is wrong."""
    found = _WKT.fullmatch(text)
    if found is None:
        raise ValueError("expected WKT such as 'POLYGON((13.3 52.4, 13.5 52.4, 13.4 52.6))'")
    body, at, points = found[1], 0, 0
    rings: list[list[Point]] = []
    while at < len(body) or not rings:
        ring = _RING.match(body, at)
        if ring is None:
            raise ValueError(
                f"at character {found.start(1) + at + 1}: expected (lon lat, lon lat, …)"
            )
        points += ring[1].count(",") + 1
        if points > POLYGON_POINTS_MAX:
            raise ValueError(f"more than {POLYGON_POINTS_MAX} points")
        rings.append(_ring(ring[1], found.start(1) + ring.start(1)))
        if ring[2] and ring.end() == len(body):
            raise ValueError("expected another ring behind the last comma")
        at = ring.end()
    return Polygon(rings)


def _ring(text: str, begin: int) -> list[Point]:
    corners: list[Point] = []
    at = begin
    for number, part in enumerate(text.split(","), 1):
        point = _POINT.fullmatch(part)
        if point is None:
            raise ValueError(
                f"at character {at + 1}, point {number} {part.strip()[:40]!r}: expected longitude "
                "and latitude, as in 13.4 52.5"
            )
        lon, lat = float(point[1]), float(point[2])
        try:
            check_place(lat, lon)
        except ValueError as error:
            raise ValueError(
                f"at character {at + 1}, point {number}: {error}; the longitude comes first"
            ) from None
        corners.append((lat, lon))
        at += len(part) + 1
    if corners[0] != corners[-1]:
        corners.append(corners[0])
    if len(set(corners)) < 3:
        raise ValueError(f"at character {begin + 1}: expected three different points or more")
    lons = [lon for _, lon in corners]
    if max(lons) - min(lons) > 180:
        raise ValueError(
            f"at character {begin + 1}: it is wider than half the earth; cut it in two at the "
            "antimeridian"
        )
    return corners
