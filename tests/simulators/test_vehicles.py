"""Vehicles drive as vehicles do: their energy, their way."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from edgewake.simulators import vehicles as v
from edgewake.simulators.town_maker import make
from edgewake.simulators.world import World
from tests.simulators.test_world import a_drive, worlds

TOWN = make()


@given(worlds)
@a_drive
def test_the_battery_only_fills_at_a_charging_station(world: World):
    for vehicle in world.vehicles:
        vehicle.battery = v.RECHARGE_BELOW_PERCENT + 0.5
    for _ in range(900):
        before = [vehicle.battery for vehicle in world.vehicles]
        world.step(1.0)
        for battery, vehicle in zip(before, world.vehicles, strict=True):
            assert 0 <= vehicle.battery <= 100
            if vehicle.battery > battery:
                assert vehicle.speed == 0 or vehicle.metres < 5
                assert (
                    min(math.dist(vehicle.position()[0], TOWN.junctions[s]) for s in TOWN.stations)
                    < 10
                )


def test_an_empty_vehicle_drives_to_a_station_and_leaves_it_charged():
    world = World(vehicles=1, seed=3)
    (vehicle,) = world.vehicles
    vehicle.battery = v.RECHARGE_BELOW_PERCENT - 1
    charged = False
    for _ in range(7200):
        world.step(1.0)
        charged = charged or vehicle.charging
        if charged and not vehicle.charging:
            break
    assert charged
    assert vehicle.battery >= v.CHARGED_PERCENT - 1


def test_nobody_runs_out_of_energy_in_a_day():
    world = World(vehicles=2, seed=11)
    lowest = 100.0
    for _ in range(24 * 360):
        world.step(10.0)
        lowest = min(lowest, *(vehicle.battery for vehicle in world.vehicles))
    assert lowest > 5


def test_the_odometer_agrees_with_the_way():
    world = World(vehicles=3, seed=7)
    start = [vehicle.odometer_m for vehicle in world.vehicles]
    way = [0.0, 0.0, 0.0]
    for _ in range(6000):
        places = [vehicle.position()[0] for vehicle in world.vehicles]
        world.step(0.1)
        for i, (place, vehicle) in enumerate(zip(places, world.vehicles, strict=True)):
            way[i] += math.dist(place, vehicle.position()[0])
    for begun, metres, vehicle in zip(start, way, world.vehicles, strict=True):
        assert vehicle.odometer_m - begun == pytest.approx(metres, rel=0.02, abs=5)


def test_the_heading_is_where_it_goes():
    world = World(vehicles=5, seed=2)
    for _ in range(300):
        before = [(vehicle.position(), vehicle.edge) for vehicle in world.vehicles]
        world.step(0.2)
        for ((place, heading), edge), vehicle in zip(before, world.vehicles, strict=True):
            (x, y), _ = vehicle.position()
            if vehicle.edge is edge and math.dist(place, (x, y)) > 0.5:
                went = math.degrees(math.atan2(x - place[0], y - place[1]))
                assert abs((went - heading + 180) % 360 - 180) < 20
