"""A seeded world: a fleet in a town. Pure: `step` lets time pass, `readings` looks.

The same seed and the same steps give the same readings. Adding a vehicle changes no other one's
story.
"""

from __future__ import annotations

import random
from typing import Final

from edgewake.simulators.town import Town
from edgewake.simulators.town_maker import make
from edgewake.simulators.vehicles import Vehicle

VEHICLES_MAX: Final = 1000
"""Vehicles in a world. One connection each, so more belong into a second process."""


class World:
    """Vehicles car-01 … in the town."""

    def __init__(self, *, vehicles: int = 20, seed: int = 1, town: Town | None = None) -> None:
        if not 1 <= vehicles <= VEHICLES_MAX:
            raise ValueError(f"vehicles = {vehicles}: expected 1 to {VEHICLES_MAX}")
        self.town = town or make()
        self.vehicles = tuple(
            Vehicle(f"car-{i:02}", self.town, random.Random(f"{seed}/{i}"))
            for i in range(1, vehicles + 1)
        )
        self.seconds = 0.0

    def step(self, dt: float) -> None:
        """Let `dt` seconds pass for all."""
        for vehicle in self.vehicles:
            vehicle.step(dt)
        self.seconds += dt

    def readings(self) -> dict[str, dict[str, float | str]]:
        """Vehicle → fields of its `vehicle_position`."""
        return {vehicle.name: vehicle.reading() for vehicle in self.vehicles}
