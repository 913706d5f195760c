"""A town: junctions and streets on a plane in metres, its place on Earth, and its map. Pure.

The plane's x is east and y north of the origin. `geojson` gives the town as a map (RFC 7946), small
enough to serve beside a page.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, TypeAlias

Point: TypeAlias = tuple[float, float]
"""Metres east and north of the origin."""

NAME: Final = "Ballymerrow"
ORIGIN_LAT: Final = 53.2040
ORIGIN_LON: Final = -6.1180
"""On the coast south of Dublin Bay, where the map shows fields."""

MAP_M: Final = (-4300.0, -3200.0, 4700.0, 3200.0)
"""West, south, east and north border of the map."""

# Metres per degree on the WGS 84 ellipsoid at ORIGIN_LAT (series of the meridian and parallel
# arcs); 0.1 % off at 4 km.
_PHI: Final = math.radians(ORIGIN_LAT)
_M_PER_LAT: Final = 111_132.954 - 559.822 * math.cos(2 * _PHI) + 1.175 * math.cos(4 * _PHI)
_M_PER_LON: Final = (
    111_412.84 * math.cos(_PHI) - 93.5 * math.cos(3 * _PHI) + 0.118 * math.cos(5 * _PHI)
)


class StreetClass(StrEnum):
    """Class of a street; decides the speed limit and who waits at a junction."""

    RING = "ring"
    MAIN = "main"
    STREET = "street"


LIMIT_KMH: Final = {StreetClass.RING: 80.0, StreetClass.MAIN: 50.0, StreetClass.STREET: 30.0}


@dataclass(frozen=True)
class Edge:
    """A piece of street between two junctions, drivable both ways."""

    a: int
    b: int
    street: str
    kind: StreetClass
    points: tuple[Point, ...]
    bridge: bool = False

    @cached_property
    def marks(self) -> tuple[float, ...]:
        """Metres from `a` to each point."""
        marks = [0.0]
        for p, q in pairwise(self.points):
            marks.append(marks[-1] + math.dist(p, q))
        return tuple(marks)

    @property
    def length(self) -> float:
        """Metres."""
        return self.marks[-1]

    @property
    def limit(self) -> float:
        """Speed limit, m/s."""
        return LIMIT_KMH[self.kind] / 3.6

    def point_at(self, metres: float) -> tuple[Point, float]:
        """The point `metres` from `a`, and the bearing there towards `b` in degrees.

        0 is north, 90 is east.
        """
        marks = self.marks
        i = 0
        while i < len(marks) - 2 and marks[i + 1] < metres:
            i += 1
        (x0, y0), (x1, y1) = self.points[i], self.points[i + 1]
        part = min(max((metres - marks[i]) / (marks[i + 1] - marks[i]), 0.0), 1.0)
        return (x0 + (x1 - x0) * part, y0 + (y1 - y0) * part), math.degrees(
            math.atan2(x1 - x0, y1 - y0)
        ) % 360


@dataclass(frozen=True)
class Town:
    """Junctions, streets and what lies between them."""

    junctions: tuple[Point, ...]
    edges: tuple[Edge, ...]
    stations: tuple[int, ...]
    """Junctions with a charging station."""
    river: tuple[Point, ...]
    parks: tuple[tuple[str, tuple[Point, ...]], ...]
    coast: tuple[Point, ...]

    @cached_property
    def leaving(self) -> tuple[tuple[int, ...], ...]:
        """For each junction the numbers of the edges that meet there."""
        leaving: list[list[int]] = [[] for _ in self.junctions]
        for number, edge in enumerate(self.edges):
            leaving[edge.a].append(number)
            leaving[edge.b].append(number)
        return tuple(map(tuple, leaving))


def to_degrees(point: Point) -> tuple[float, float]:
    """(lat, lon) of a point of the plane, WGS 84."""
    return ORIGIN_LAT + point[1] / _M_PER_LAT, ORIGIN_LON + point[0] / _M_PER_LON


# --- as a map -------------------------------------------------------------------------------------


def geojson(town: Town) -> dict[str, Any]:
    """A FeatureCollection whose property `kind` is sea, river, park, road or station.

    Roads also have name, class and bridge.
    """
    features = [
        _feature("Polygon", [_ring(town.coast)], kind="sea"),
        _feature("Polygon", [_ring(town.river)], kind="river", name="River Merrow"),
    ]
    features += [
        _feature("Polygon", [_ring(outline)], kind="park", name=name)
        for name, outline in town.parks
    ]
    for edge in sorted(
        town.edges, key=lambda e: (list(LIMIT_KMH).index(e.kind), e.street), reverse=True
    ):
        line = [_lonlat(point) for point in edge.points]
        features.append(
            _feature(
                "LineString",
                line,
                kind="road",
                name=edge.street,
                **{"class": edge.kind.value},
                bridge=edge.bridge,
            )
        )
    features += [
        _feature("Point", _lonlat(town.junctions[node]), kind="station", name=f"Charging {i}")
        for i, node in enumerate(town.stations, 1)
    ]
    west, south, east, north = (*_lonlat(MAP_M[:2]), *_lonlat(MAP_M[2:]))
    return {
        "type": "FeatureCollection",
        "name": NAME,
        "bbox": [west, south, east, north],
        "features": features,
    }


def _lonlat(point: Point) -> list[float]:
    lat, lon = to_degrees(point)
    return [round(lon, 6), round(lat, 6)]


def _ring(outline: Sequence[Point]) -> list[list[float]]:
    """Counter-clockwise (RFC 7946 section 3.1.6)."""
    area = sum(x0 * y1 - x1 * y0 for (x0, y0), (x1, y1) in pairwise(outline))
    return [_lonlat(point) for point in (outline if area > 0 else outline[::-1])]


def _feature(kind_of_geometry: str, coordinates: object, **properties: object) -> dict[str, Any]:
    return {
        "type": "Feature",
        "properties": properties,
        "geometry": {"type": kind_of_geometry, "coordinates": coordinates},
    }
