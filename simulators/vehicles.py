"""One electric vehicle that drives through the town.

Pure: it moves when it is told how much time has passed.

It keeps to the streets, to their speed limits and to what its motor and brakes can do
(ACCELERATION, BRAKING); it slows down for turns, waits at junctions, stays a while where it wanted
to go, and drives to a charging station before its battery is empty. Vehicles do not see each other.
The safe speed is Krauss's (Metastable states in a microscopic model of traffic flow, Phys. Rev. E
55,
1997): at each step not faster than can be braked down, after that step, to what the end of the
street asks for.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from typing import Final

from edgewake.simulators.town import Edge, Point, StreetClass, Town, to_degrees

ACCELERATION_M_S2: Final = 1.6
BRAKING_M_S2: Final = 2.4
TURN_M_S: Final = 4.5
"""Speed through a turn of more than TURN_DEG."""
TURN_DEG: Final = 35.0
STEP_S_MAX: Final = 0.25
"""Longest step of the physics; longer ones are cut."""
_ARRIVED_M: Final = 1.0
_STANDING_M_S: Final = 0.3

BATTERY_KWH: Final = 42.0
CONSUMPTION_KWH_KM: Final = 0.17
AUXILIARY_KW: Final = 0.9
CHARGER_KW: Final = 110.0
RECHARGE_BELOW_PERCENT: Final = 22.0
CHARGED_PERCENT: Final = 88.0


class Vehicle:
    """Where one vehicle is and what it is about to do.

    `rng` is its own, so that vehicles do not change each other's story.
    """

    def __init__(self, name: str, town: Town, rng: random.Random) -> None:
        self.name = name
        self.town = town
        self._rng = rng
        self.edge: Edge = town.edges[rng.randrange(len(town.edges))]
        self.forward = rng.random() < 0.5
        self.metres = rng.uniform(0.1, 0.9) * self.edge.length
        """On the edge, from where it entered."""
        self.speed = 0.0
        self.battery = rng.uniform(35.0, 100.0)
        self.odometer_m = rng.uniform(2_000_000, 90_000_000)
        self.charging = False
        self._wait_s = rng.uniform(0.0, 8.0)
        self._route: list[int] = []
        self._exit_speed = 0.0
        self._choose_destination()
        self._plan_exit()

    # --- what is seen of it -----------------------------------------------------------------------

    @property
    def head(self) -> int:
        """The junction that it drives to."""
        return self.edge.b if self.forward else self.edge.a

    def position(self) -> tuple[Point, float]:
        """Point of the plane and heading in degrees."""
        point, bearing = self.edge.point_at(
            self.metres if self.forward else self.edge.length - self.metres
        )
        return point, bearing if self.forward else (bearing + 180) % 360

    def reading(self) -> dict[str, float | str]:
        """The fields of `vehicle_position`: degrees, km/h, degrees, percent, km, name."""
        point, heading = self.position()
        lat, lon = to_degrees(point)
        return {
            "lat": round(lat, 6),
            "lon": round(lon, 6),
            "speed_kmh": round(self.speed * 3.6, 1),
            "heading_deg": round(heading, 1) % 360,
            "battery_percent": round(self.battery, 2),
            "odometer_km": round(self.odometer_m / 1000, 3),
            "street": self.edge.street,
        }

    # --- moving -----------------------------------------------------------------------------------

    def step(self, dt: float) -> None:
        """Let `dt` seconds pass."""
        steps = max(1, math.ceil(dt / STEP_S_MAX))
        for _ in range(steps):
            self._substep(dt / steps)

    def _substep(self, dt: float) -> None:
        if self.charging:
            self._charge(dt)
            return
        self._drain(AUXILIARY_KW * dt / 3600)
        if self._wait_s > 0 and self.speed == 0.0:
            self._wait_s -= dt
            if self._wait_s <= 0 and self.edge.length - self.metres <= _ARRIVED_M:
                self._go_on()
            return
        self._drive(dt)

    def _drive(self, dt: float) -> None:
        gap = max(self.edge.length - self.metres, 0.0)
        wanted = min(self.edge.limit, _safe_speed(gap, self._exit_speed, dt))
        self.speed = min(
            max(wanted, self.speed - BRAKING_M_S2 * dt, 0.0), self.speed + ACCELERATION_M_S2 * dt
        )
        moved = self.speed * dt
        self.metres += moved
        self.odometer_m += moved
        self._drain(CONSUMPTION_KWH_KM * moved / 1000)
        if self._exit_speed == 0.0:
            if gap - moved <= _ARRIVED_M and self.speed <= _STANDING_M_S:
                self.speed = 0.0
                self._arrive()
        elif self.metres >= self.edge.length:
            self._enter_next()

    def _arrive(self) -> None:
        """It stands at a junction: for the traffic, or because this is where it wanted to go."""
        if self._route:
            self._wait_s = max(self._wait_s, 0.5)
        elif self.head in self.town.stations and self.battery < RECHARGE_BELOW_PERCENT + 5:
            self.charging = True
        else:
            self._wait_s = self._rng.uniform(10, 45)

    def _go_on(self) -> None:
        if not self._route:
            self._choose_destination()
        self.metres = self.edge.length
        self._enter_next()

    def _enter_next(self) -> None:
        over = max(self.metres - self.edge.length, 0.0)
        junction = self.head
        self.edge = self.town.edges[self._route.pop(0)]
        self.forward = self.edge.a == junction
        self.metres = over
        self._wait_s = 0.0
        self._plan_exit()

    def _charge(self, dt: float) -> None:
        self.battery = min(100.0, self.battery + CHARGER_KW * dt / 3600 / BATTERY_KWH * 100)
        if self.battery >= CHARGED_PERCENT:
            self.charging = False
            self._go_on()

    def _drain(self, kwh: float) -> None:
        self.battery = max(0.0, self.battery - kwh / BATTERY_KWH * 100)

    # --- deciding ---------------------------------------------------------------------------------

    def _choose_destination(self) -> None:
        start = self.head
        while True:
            if self.battery < RECHARGE_BELOW_PERCENT:
                goals: Sequence[int] = [
                    s for s in self.town.stations if s != start
                ] or self.town.stations
            else:
                goals = (self._rng.randrange(len(self.town.junctions)),)
            if start not in goals:
                self._route = route(self.town, start, goals)
                return

    def _plan_exit(self) -> None:
        """Plan the speed at the end of this street: 0 where the vehicle must stop first."""
        self._exit_speed = 0.0
        if not self._route:
            return
        following = self.town.edges[self._route[0]]
        turn = _turn_deg(self.edge, following, self.head)
        if turn > 150:
            self._wait_s = 2.0
        elif following.street == self.edge.street and self._passes_freely(following):
            self._exit_speed = min(self.edge.limit, following.limit)
        elif self._rng.random() < 0.55:
            self._exit_speed = min(
                TURN_M_S if turn > TURN_DEG else following.limit, self.edge.limit, following.limit
            )
        else:
            self._wait_s = self._rng.uniform(1, 12)

    def _passes_freely(self, following: Edge) -> bool:
        return following.kind is StreetClass.RING or self._rng.random() < (
            0.8 if following.kind is StreetClass.MAIN else 0.6
        )


def _safe_speed(gap: float, end_speed: float, dt: float) -> float:
    """The highest speed from which `end_speed` can be reached within `gap` metres.

    One step of reaction is included.
    """
    reaction = BRAKING_M_S2 * dt
    return -reaction + math.sqrt(
        reaction * reaction + end_speed * end_speed + 2 * BRAKING_M_S2 * gap
    )


def _turn_deg(edge: Edge, following: Edge, junction: int) -> float:
    coming = (
        edge.point_at(edge.length)[1] if edge.b == junction else (edge.point_at(0.0)[1] + 180) % 360
    )
    going = (
        following.point_at(0.0)[1]
        if following.a == junction
        else (following.point_at(following.length)[1] + 180) % 360
    )
    return abs((going - coming + 180) % 360 - 180)


def route(town: Town, start: int, goals: Sequence[int]) -> list[int]:
    """Numbers of the edges of the fastest way from a junction to the nearest of `goals` (Dijkstra).

    The town is connected.
    """
    best = {start: 0.0}
    came: dict[int, tuple[int, int]] = {}
    queue = [(0.0, start)]
    wanted = set(goals)
    while queue:
        seconds, junction = heapq.heappop(queue)
        if junction in wanted:
            return _walk_back(came, start, junction)
        if seconds > best[junction]:
            continue
        for number in town.leaving[junction]:
            edge = town.edges[number]
            other = edge.a + edge.b - junction
            then = seconds + edge.length / edge.limit
            if then < best.get(other, math.inf):
                best[other] = then
                came[other] = (junction, number)
                heapq.heappush(queue, (then, other))
    raise ValueError(f"no way from junction {start} to {sorted(wanted)}")


def _walk_back(came: dict[int, tuple[int, int]], start: int, end: int) -> list[int]:
    way = []
    while end != start:
        end, number = came[end]
        way.append(number)
    return way[::-1]
