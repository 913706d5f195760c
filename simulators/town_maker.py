"""The town of the simulated fleet, which does not exist. Pure; the same at every call.

A street is a row or a column of a grid that bends with the river, so quays follow the water; few
columns cross it, on bridges; an elliptic ring road takes the ends of the main streets. Minor
streets are left out here and there, and none is a dead end.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Final

from edgewake.simulators.town import MAP_M, Edge, Point, StreetClass, Town

_SEED: Final = 5
_COLUMNS: Final = range(-7, 8)
_ROWS: Final = (-6, -5, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6)
_BLOCK_X_M: Final = 390.0
_BLOCK_Y_M: Final = 340.0
_BRIDGES: Final = {
    -5: "Mill Bridge",
    -2: "Heron Bridge",
    0: "Market Bridge",
    3: "Chandlers Bridge",
    6: "Ferry Bridge",
}
_MAIN_COLUMNS: Final = frozenset({-5, 0, 3})
_MAIN_ROWS: Final = frozenset({-4, -1, 1, 4})
_RING_X_M: Final = 3350.0
_RING_Y_M: Final = 2600.0
_RIVER_HALF_M: Final = 42.0
_MINOR_LEFT_OUT: Final = 0.08
_PARKS: Final = (
    ("Larkfield Park", -3, 2, 2, 2),
    ("Priory Green", 1, -3, 1, 1),
    ("Weir Meadows", 4, 1, 2, 1),
    ("Orchard Park", -4, -4, 2, 1),
)
"""Name, column, row of the south-west corner, blocks east, blocks north."""

_ROW_NAMES: Final = {
    6: "Beacon Road", 5: "Hazel Street", 4: "Northern Avenue", 3: "Linden Street",
    2: "Weavers Lane", 1: "North Quay",
    -1: "South Quay", -2: "Coopers Lane", -3: "Priory Street", -4: "Southern Avenue",
    -5: "Rowan Street", -6: "Quarry Road",
}  # fmt: skip
_COLUMN_NAMES: Final = {
    -7: "Kiln Lane", -6: "Orchard Street", -5: "Mill Road", -4: "Swan Street",
    -3: "Larkfield Street", -2: "Heron Street",
    -1: "Bakers Lane", 0: "Market Street", 1: "Bell Street", 2: "Glovers Lane", 3: "Chandlers Road",
    4: "Weir Street",
    5: "Gannet Street", 6: "Ferry Road", 7: "Strand Street",
}  # fmt: skip


def _river_y(x: float) -> float:
    return 190 * math.sin(x / 1150 + 0.6) + 70 * math.sin(x / 430)


def _bend(u: float, v: float) -> Point:
    """Grid to plane: rows near the water follow it, far ones forget it; columns sway a little."""
    near = math.exp(-((v / 1300) ** 2))
    x = u + 70 * math.sin(v / 700 + 0.8) + 38 * math.sin(u / 900 + v / 500)
    y = v + _river_y(x) * (0.25 + 0.75 * near) + 45 * math.sin(u / 800) * (1 - near)
    return x, y


def _grid_point(column: int, row: int, rng: random.Random) -> Point:
    side = 1 if row > 0 else -1
    v = side * (_RIVER_HALF_M + 26) + (row - side) * _BLOCK_Y_M
    shake = 0.0 if abs(row) == 1 else 26.0
    return _bend(column * _BLOCK_X_M + rng.uniform(-34, 34), v + rng.uniform(-shake, shake))


def _ring_radius(point: Point) -> float:
    return math.hypot(point[0] / _RING_X_M, point[1] / _RING_Y_M)


def _inside_park(column: int, row: int, step_column: int, step_row: int) -> bool:
    """Does the piece from (column, row) cross the inside of a park?"""
    for _, west, south, wide, high in _PARKS:
        if step_column and west <= column < west + wide and south < row < south + high:
            return True
        if step_row and west < column < west + wide and south <= row < south + high:
            return True
    return False


@dataclass(frozen=True)
class _Piece:
    a: tuple[int, int] | int
    b: tuple[int, int] | int
    street: str
    kind: StreetClass
    bridge: bool = False


def _grid_pieces(nodes: dict[tuple[int, int], Point], rng: random.Random) -> Iterator[_Piece]:
    for column, row in nodes:
        if (east := (column + 1, row)) in nodes:
            kind = StreetClass.MAIN if row in _MAIN_ROWS else StreetClass.STREET
            if kind is StreetClass.MAIN or not (
                _inside_park(column, row, 1, 0) or rng.random() < _MINOR_LEFT_OUT
            ):
                yield _Piece((column, row), east, _ROW_NAMES[row], kind)
        north_row = row + 1 if row != -1 else 1
        if (north := (column, north_row)) in nodes:
            if row == -1:
                if column in _BRIDGES:
                    yield _Piece(
                        (column, row), north, _BRIDGES[column], StreetClass.MAIN, bridge=True
                    )
                continue
            kind = StreetClass.MAIN if column in _MAIN_COLUMNS else StreetClass.STREET
            if kind is StreetClass.MAIN or not (
                _inside_park(column, row, 0, 1) or rng.random() < _MINOR_LEFT_OUT
            ):
                yield _Piece((column, row), north, _COLUMN_NAMES[column], kind)


def _main_ends(nodes: dict[tuple[int, int], Point]) -> Iterator[tuple[tuple[int, int], str]]:
    for row in sorted(_MAIN_ROWS):
        columns = [c for c, r in nodes if r == row]
        for column in (min(columns), max(columns)):
            yield (column, row), _ROW_NAMES[row]
    for column in sorted(_MAIN_COLUMNS):
        rows = [r for c, r in nodes if c == column]
        for row in (min(rows), max(rows)):
            yield (column, row), _COLUMN_NAMES[column]


def _on_ring(angle: float) -> Point:
    return _RING_X_M * math.cos(angle), _RING_Y_M * math.sin(angle)


def _pruned(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Without dead ends: nobody has to turn round on the way."""
    kept = list(pieces)
    while True:
        degree: dict[object, int] = defaultdict(int)
        for piece in kept:
            degree[piece.a] += 1
            degree[piece.b] += 1
        rest = [piece for piece in kept if degree[piece.a] > 1 and degree[piece.b] > 1]
        if len(rest) == len(kept):
            return kept
        kept = rest


def _curve(before: Point, p: Point, q: Point, after: Point, steps: int = 5) -> tuple[Point, ...]:
    """A Catmull-Rom spline from p to q, so that a street does not break at each junction."""

    def at(t: float, axis: int) -> float:
        m0, m1 = (q[axis] - before[axis]) / 2, (after[axis] - p[axis]) / 2
        a, b = 2 * (p[axis] - q[axis]) + m0 + m1, 3 * (q[axis] - p[axis]) - 2 * m0 - m1
        return ((a * t + b) * t + m0) * t + p[axis]

    return tuple((round(at(i / steps, 0), 1), round(at(i / steps, 1), 1)) for i in range(steps + 1))


def _neighbour(of: int, along: str, but: int, pieces: Iterable[tuple[int, int, str]]) -> int | None:
    found = [b if a == of else a for a, b, street in pieces if street == along and of in (a, b)]
    found = [node for node in found if node != but]
    return found[0] if len(found) == 1 else None


@lru_cache(maxsize=1)
def make() -> Town:
    """The town. Always the same one."""
    rng = random.Random(_SEED)
    nodes = {(c, r): _grid_point(c, r, rng) for r in _ROWS for c in _COLUMNS}
    nodes = {key: point for key, point in nodes.items() if _ring_radius(point) < 0.93}
    ends = sorted(_main_ends(nodes), key=lambda end: _angle(nodes[end[0]]))
    angles = [_angle(nodes[key]) for key, _ in ends]
    pieces = list(_grid_pieces(nodes, rng))
    pieces += [_Piece(key, i, name, StreetClass.MAIN) for i, (key, name) in enumerate(ends)]
    pieces += [
        _Piece(i, (i + 1) % len(ends), "Ring Road", StreetClass.RING) for i in range(len(ends))
    ]
    return _assemble(_pruned(pieces), nodes, angles, rng)


def _angle(point: Point) -> float:
    return math.atan2(point[1] / _RING_Y_M, point[0] / _RING_X_M)


def _assemble(
    pieces: list[_Piece],
    nodes: dict[tuple[int, int], Point],
    angles: list[float],
    rng: random.Random,
) -> Town:
    keys: list[tuple[int, int] | int] = sorted(
        {key for piece in pieces for key in (piece.a, piece.b)}, key=str
    )
    number = {key: i for i, key in enumerate(keys)}
    at = [nodes[key] if isinstance(key, tuple) else _on_ring(angles[key]) for key in keys]
    junctions = tuple((round(x, 1), round(y, 1)) for x, y in at)
    plain = [(number[piece.a], number[piece.b], piece.street) for piece in pieces]
    edges = []
    for piece, (a, b, street) in zip(pieces, plain, strict=True):
        if piece.kind is StreetClass.RING:
            points = _arc(angles[piece.a], angles[piece.b])  # type: ignore[index]
        else:
            before, after = _neighbour(a, street, b, plain), _neighbour(b, street, a, plain)
            p, q = junctions[a], junctions[b]
            points = _curve(
                p if before is None else junctions[before],
                p,
                q,
                q if after is None else junctions[after],
            )
        points = (junctions[a], *points[1:-1], junctions[b])
        bridge = piece.bridge or (piece.kind is StreetClass.RING and _crosses_river(points))
        edges.append(Edge(a, b, piece.street, piece.kind, points, bridge))
    grid = [i for i, key in enumerate(keys) if isinstance(key, tuple)]
    stations = tuple(sorted(rng.sample(grid, 6)))
    parks = tuple((park[0], _park_outline(park, nodes)) for park in _PARKS)
    return Town(junctions, tuple(edges), stations, _river_outline(), parks, _coast())


def _arc(start: float, end: float) -> tuple[Point, ...]:
    turn = (end - start) % math.tau
    steps = max(2, round(turn / 0.06))
    return tuple(
        (round(x, 1), round(y, 1))
        for x, y in (_on_ring(start + turn * i / steps) for i in range(steps + 1))
    )


def _crosses_river(points: Sequence[Point]) -> bool:
    sides = [y > _river_y(x) for x, y in points]
    return any(p != q for p, q in pairwise(sides))


def _park_outline(
    park: tuple[str, int, int, int, int], nodes: dict[tuple[int, int], Point]
) -> tuple[Point, ...]:
    _, west, south, wide, high = park
    border = [(west + i, south) for i in range(wide)] + [
        (west + wide, south + i) for i in range(high)
    ]
    border += [(west + wide - i, south + high) for i in range(wide)] + [
        (west, south + high - i) for i in range(high)
    ]
    corners = [nodes[key] for key in border]
    middle = (sum(x for x, _ in corners) / len(corners), sum(y for _, y in corners) / len(corners))
    inset = [(x + (middle[0] - x) * 0.10, y + (middle[1] - y) * 0.10) for x, y in corners]
    return (
        *((round(x, 1), round(y, 1)) for x, y in inset),
        (round(inset[0][0], 1), round(inset[0][1], 1)),
    )


_EAST_M: Final = 5600


def _coast_x(y: float) -> float:
    return 3850 + 160 * math.sin(y / 900) + 60 * math.sin(y / 310 + 1)


def _coast() -> tuple[Point, ...]:
    shore = [(round(_coast_x(y), 1), float(y)) for y in range(-3600, 3601, 120)]
    return (*shore, (_EAST_M, 3600.0), (_EAST_M, -3600.0), shore[0])


def _river_outline() -> tuple[Point, ...]:
    xs = range(round(MAP_M[0]), 4100, 60)
    wide = [_RIVER_HALF_M + max(0.0, x - 3000) * 0.16 for x in xs]
    north = [(float(x), round(_river_y(x) + w, 1)) for x, w in zip(xs, wide, strict=True)]
    south = [(float(x), round(_river_y(x) - w, 1)) for x, w in zip(xs, wide, strict=True)]
    return (*south, *reversed(north), south[0])
