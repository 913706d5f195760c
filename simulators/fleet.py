"""A fleet on the air: each vehicle of a World is a plain MQTT device of its own and sends where it is, once per interval.

A reading is one JSON object with `t`, `epoch` and `seq`, so that repeats are removed; the epoch is the second of the start, so a
restarted fleet never uses a number twice. A vehicle sends the next reading when the one before is acknowledged: in order, whatever
dies between. Readings that wait longer than WAITING_MAX are given up, oldest first, and counted.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from edgewake.protocol.clock import Clock
from edgewake.protocol.names import is_stream
from edgewake.simulators.outbox import Outbox
from edgewake.simulators.plain_device import Broker, PlainDevice
from edgewake.simulators.vehicles import Vehicle
from edgewake.simulators.world import World

log = logging.getLogger("edgewake.simulate")

STREAM: Final = "vehicle_position"
WAITING_MAX: Final = 900
"""Readings a vehicle keeps while nobody acknowledges: 15 minutes at one a second, 200 kB. Then the oldest goes."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """How the fleet sends."""

    broker: Broker
    interval_s: float = 1.0
    speedup: float = 1.0
    """Seconds of the town per second of the clock; event times stay the clock's."""
    stream: str = STREAM
    prefix: str = ""
    """Before each vehicle's name: two fleets on one broker need two prefixes."""


class Fleet:
    """The vehicles of a world and their connections."""

    def __init__(self, world: World, plan: FleetPlan, *, clock: Clock, rng: random.Random) -> None:
        assert is_stream(plan.stream)
        self._plan = plan
        self._clock = clock
        self._rng = rng
        self._epoch = clock.now_ms() // 1000
        self._connected: set[str] = set()
        self._all_connected: bool | None = None
        self._ready = False
        self._vehicles = world.vehicles
        self.devices = {vehicle.name: self._device(plan.prefix + vehicle.name) for vehicle in world.vehicles}

    def _device(self, name: str) -> PlainDevice:
        outbox = Outbox(window=1, lane_window=1, capacity=WAITING_MAX)
        return PlainDevice(name, self._plan.broker, outbox, clock=self._clock, rng=self._rng, on_change=partial(self._changed, name))

    def _changed(self, name: str, connected: bool) -> None:
        """Say once per change of the whole, not once per vehicle."""
        (self._connected.add if connected else self._connected.discard)(name)
        all_connected = len(self._connected) == len(self._vehicles)
        if all_connected is self._all_connected or (connected and not all_connected):
            return
        begins, self._all_connected = not self._ready, all_connected
        where = f"{self._plan.broker.host}:{self._plan.broker.port}"
        if not all_connected:
            log.warning("the broker at %s is away; readings wait", where, extra={"event": "mqtt.disconnected"})
        elif begins:
            self._ready = True
            log.info("%d vehicles drive and send", len(self._vehicles), extra={"event": "part.ready", "vehicles": len(self._vehicles)})
        else:
            log.info("all vehicles are connected again", extra={"event": "mqtt.connected"})

    async def run(self) -> None:
        """Drive and send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number, vehicle in enumerate(self._vehicles):
                device = self.devices[vehicle.name]
                tasks.create_task(device.run(), name=f"{vehicle.name} connection")
                phase_s = self._plan.interval_s * number / len(self._vehicles)
                tasks.create_task(self._drive(vehicle, device, phase_s), name=f"{vehicle.name} drive")

    async def _drive(self, vehicle: Vehicle, device: PlainDevice, phase_s: float) -> None:
        """One reading per interval, each vehicle at its own moment of it. A late tick is not made up for."""
        next_s = self._clock.monotonic_s() + phase_s
        seq = 0
        while True:
            await self._clock.sleep(max(0.0, next_s - self._clock.monotonic_s()))
            vehicle.step(self._plan.interval_s * self._plan.speedup)
            seq += 1
            reading = {"t": self._clock.now_ms(), "epoch": self._epoch, "seq": seq, **vehicle.reading()}
            device.offer(self._plan.prefix + vehicle.name, self._plan.stream, orjson.dumps(reading))
            next_s = max(next_s + self._plan.interval_s, self._clock.monotonic_s())
