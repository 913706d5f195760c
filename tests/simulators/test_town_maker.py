"""The town as it is made: connected, its streets end at their junctions."""

from __future__ import annotations

import math

from edgewake.simulators import town_maker
from tests.simulators.test_town import TOWN


def test_every_junction_is_reached_from_every_other():
    seen, todo = {0}, [0]
    while todo:
        junction = todo.pop()
        for number in TOWN.leaving[junction]:
            edge = TOWN.edges[number]
            if (other := edge.a + edge.b - junction) not in seen:
                seen.add(other)
                todo.append(other)
    assert len(seen) == len(TOWN.junctions)


def test_no_junction_is_a_dead_end():
    assert min(map(len, TOWN.leaving)) >= 2


def test_a_street_ends_exactly_at_its_junctions():
    for edge in TOWN.edges:
        assert (edge.points[0], edge.points[-1]) == (TOWN.junctions[edge.a], TOWN.junctions[edge.b])


def test_only_bridges_cross_the_river():
    """Seen by the side of the water on which each end lies."""
    for edge in TOWN.edges:
        assert town_maker._crosses_river(edge.points) == edge.bridge, edge.street


def test_there_are_bridges_a_ring_road_and_charging_stations():
    assert {edge.street for edge in TOWN.edges if edge.bridge} >= {
        "Mill Bridge",
        "Heron Bridge",
        "Market Bridge",
        "Ring Road",
    }
    assert len(TOWN.stations) == 6


def test_parks_have_no_street_through_them():
    for name, outline in TOWN.parks:
        middle = tuple(sum(axis) / (len(outline) - 1) for axis in zip(*outline[:-1], strict=True))
        assert min(math.dist(middle, point) for edge in TOWN.edges for point in edge.points) > 60, (
            name
        )
