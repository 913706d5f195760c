"""The fleet moves as vehicles do."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.simulators import vehicles as v
from edgewake.simulators.town import LIMIT_KMH
from edgewake.simulators.world import World
from tests.examples import examples
from tests.simulators.plane import to_plane

ROUNDING = 1e-6
worlds = st.builds(World, vehicles=st.integers(1, 4), seed=st.integers(0, 10_000))
a_drive = settings(max_examples=examples(40), deadline=None)


def distance_from_street(vehicle: v.Vehicle) -> float:
    (x, y), _ = vehicle.position()
    return min(_distance((x, y), p, q) for p, q in pairwise(vehicle.edge.points))


def _distance(point, p, q) -> float:
    dx, dy = q[0] - p[0], q[1] - p[1]
    part = min(max(((point[0] - p[0]) * dx + (point[1] - p[1]) * dy) / (dx * dx + dy * dy), 0), 1)
    return math.dist(point, (p[0] + part * dx, p[1] + part * dy))


@given(worlds, st.lists(st.floats(0.05, 1.0), min_size=50, max_size=200))
@a_drive
def test_nobody_jumps_speeds_or_brakes_harder_than_brakes_can(world: World, steps: list[float]):
    for dt in steps:
        before = [(vehicle.position()[0], vehicle.speed) for vehicle in world.vehicles]
        world.step(dt)
        for (place, speed), vehicle in zip(before, world.vehicles, strict=True):
            fastest = max(speed, vehicle.speed) + v.ACCELERATION_M_S2 * dt
            assert math.dist(place, vehicle.position()[0]) <= fastest * dt + v._ARRIVED_M
            assert vehicle.speed - speed <= v.ACCELERATION_M_S2 * dt + ROUNDING
            assert speed - vehicle.speed <= v.BRAKING_M_S2 * dt + v._STANDING_M_S + ROUNDING


@given(worlds, st.lists(st.floats(0.1, 2.0), min_size=50, max_size=200))
@a_drive
def test_everybody_stays_on_the_street_and_within_its_limit(world: World, steps: list[float]):
    for dt in steps:
        world.step(dt)
        for vehicle in world.vehicles:
            assert distance_from_street(vehicle) < 0.01
            assert vehicle.speed <= vehicle.edge.limit + ROUNDING


def test_vehicles_drive_wait_and_use_every_class_of_street():
    world = World(vehicles=20, seed=1)
    classes, standing, seen = set(), 0, 0
    for _ in range(600):
        world.step(1.0)
        for vehicle in world.vehicles:
            classes.add(vehicle.edge.kind)
            standing += vehicle.speed == 0
            seen += 1
    assert classes == set(LIMIT_KMH)
    assert 0.05 < standing / seen < 0.6


def test_the_same_seed_gives_the_same_day_and_another_seed_another():
    days = [World(vehicles=3, seed=seed) for seed in (4, 4, 5)]
    for world in days:
        for _ in range(200):
            world.step(1.0)
    assert days[0].readings() == days[1].readings() != days[2].readings()


def test_one_more_vehicle_changes_nobody_elses_story():
    small, large = World(vehicles=2, seed=9), World(vehicles=3, seed=9)
    for world in (small, large):
        for _ in range(100):
            world.step(1.0)
    assert small.readings().items() <= large.readings().items()


def test_a_reading_has_the_fields_of_the_stream():
    reading = World(vehicles=1).readings()["car-01"]
    assert list(reading) == [
        "lat",
        "lon",
        "speed_kmh",
        "heading_deg",
        "battery_percent",
        "odometer_km",
        "street",
    ]
    x, y = to_plane(reading["lat"], reading["lon"])
    assert abs(x) < 4000
    assert abs(y) < 3500


@pytest.mark.parametrize("vehicles", [0, 1001])
def test_a_world_of_no_or_too_many_vehicles_is_refused(vehicles: int):
    with pytest.raises(ValueError, match="expected 1 to 1000"):
        World(vehicles=vehicles)
