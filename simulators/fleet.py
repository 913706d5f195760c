"""A fleet on the air: each vehicle of a World is an MQTT device that sends its position.

It sends once per interval.

A reading is one JSON object with `t`, `epoch` and `seq`, so that repeats are removed; the epoch is
the second of the start, so a restarted fleet never uses a number twice. At one reading a second a
vehicle sends the next when the one before is acknowledged: in order, whatever dies between. Faster
ones have as many on their way as they make within ANSWER_S, else the way there and back would be
their pace. Readings that wait longer than WAITING_MAX are given up, oldest first, counted, and the
count is logged.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import resource
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError
from edgewake.protocol.names import is_stream
from edgewake.simulators.outbox import Outbox
from edgewake.simulators.plain_device import Broker, PlainDevice
from edgewake.simulators.vehicles import Vehicle
from edgewake.simulators.world import World

log = logging.getLogger("edgewake.simulate")

STREAM: Final = "vehicle_position"
WAITING_MAX: Final = 900
"""Readings a vehicle keeps while nobody acknowledges: 15 minutes at one a second, 200 kB. Then the
oldest goes."""
ANSWER_S: Final = 1.0
"""Seconds within which an acknowledgement is back, also from a busy cloud: the readings of a
vehicle in this time are on their way at once."""
IN_FLIGHT_MAX: Final = 64
"""Readings of one vehicle on their way: far fewer than the sequencer can put into order (1024)."""
REPORT_S: Final = 10.0
"""Seconds between two log lines about readings that were given up."""
FILES_SPARE: Final = 64
"""File descriptors besides one for each vehicle's connection."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What the fleet sends, and where."""

    broker: Broker
    interval_s: float = 1.0
    speedup: float = 1.0
    """Seconds of the town per second of the clock; event times stay the clock's."""
    stream: str = STREAM
    prefix: str = ""
    """Before each vehicle's name: two fleets on one broker need two prefixes."""
    waiting_max: int = WAITING_MAX
    report_s: float = REPORT_S


def in_flight(interval_s: float) -> int:
    """Readings of one vehicle on their way at once."""
    return min(IN_FLIGHT_MAX, max(1, math.ceil(ANSWER_S / interval_s)))


def allow_files(connections: int) -> None:
    """Ask the system for a file descriptor per connection.

    Raises LocalError where it may not give as many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES_SPARE
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise LocalError(
            f"{connections} vehicles need {wanted} open files, and this user may have {hard}: "
            "raise `ulimit -Hn`, or simulate fewer"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


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
        self.devices = {
            vehicle.name: self._device(plan.prefix + vehicle.name) for vehicle in world.vehicles
        }

    def _device(self, name: str) -> PlainDevice:
        window = in_flight(self._plan.interval_s)
        outbox = Outbox(window=window, lane_window=window, capacity=self._plan.waiting_max)
        return PlainDevice(
            name,
            self._plan.broker,
            outbox,
            clock=self._clock,
            rng=self._rng,
            on_change=partial(self._changed, name),
        )

    def _changed(self, name: str, connected: bool) -> None:
        """Say once per change of the whole, not once per vehicle."""
        (self._connected.add if connected else self._connected.discard)(name)
        all_connected = len(self._connected) == len(self._vehicles)
        if all_connected is self._all_connected or (connected and not all_connected):
            return
        begins, self._all_connected = not self._ready, all_connected
        where = f"{self._plan.broker.host}:{self._plan.broker.port}"
        if not all_connected:
            log.warning(
                "the broker at %s is away; readings wait",
                where,
                extra={"event": "mqtt.disconnected"},
            )
        elif begins:
            self._ready = True
            log.info(
                "%d vehicles drive and send",
                len(self._vehicles),
                extra={"event": "part.ready", "vehicles": len(self._vehicles)},
            )
        else:
            log.info("all vehicles are connected again", extra={"event": "mqtt.connected"})

    async def run(self) -> None:
        """Drive and send until cancelled.

        Raises LocalError where the system allows too few connections.
        """
        allow_files(len(self._vehicles))
        try:
            await self._run()
        finally:
            sums = self.sums()
            text = ", ".join(f"{count} {name}" for name, count in sums.items())
            log.info("the fleet stops: %s", text, extra={"event": "fleet.stopped", **sums})

    def sums(self) -> dict[str, int]:
        """What became of all readings so far."""
        devices = self.devices.values()
        return {
            "sent": sum(device.counts.sent for device in devices),
            "acked": sum(device.counts.acked for device in devices),
            "rejected": sum(device.counts.rejected for device in devices),
            "given_up": sum(device.outbox.given_up for device in devices),
        }

    async def _report(self) -> None:
        """Log what was given up, when there is more of it."""
        before = 0
        while True:
            await self._clock.sleep(self._plan.report_s)
            given_up = self.sums()["given_up"]
            if given_up > before:
                log.warning(
                    "%d readings were given up, %d of them in the last %.0f s: "
                    "acknowledgements are too slow",
                    given_up,
                    given_up - before,
                    self._plan.report_s,
                    extra={"event": "fleet.given_up", "readings": given_up},
                )
            before = given_up

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._report(), name="report")
            for number, vehicle in enumerate(self._vehicles):
                device = self.devices[vehicle.name]
                tasks.create_task(device.run(), name=f"{vehicle.name} connection")
                phase_s = self._plan.interval_s * number / len(self._vehicles)
                tasks.create_task(
                    self._drive(vehicle, device, phase_s), name=f"{vehicle.name} drive"
                )

    async def _drive(self, vehicle: Vehicle, device: PlainDevice, phase_s: float) -> None:
        """One reading per interval, each vehicle at its own moment of it.

        A late tick is not made up for.
        """
        next_s = self._clock.monotonic_s() + phase_s
        seq = 0
        while True:
            await self._clock.sleep(max(0.0, next_s - self._clock.monotonic_s()))
            vehicle.step(self._plan.interval_s * self._plan.speedup)
            seq += 1
            reading = {
                "t": self._clock.now_ms(),
                "epoch": self._epoch,
                "seq": seq,
                **vehicle.reading(),
            }
            device.offer(self._plan.prefix + vehicle.name, self._plan.stream, orjson.dumps(reading))
            next_s = max(next_s + self._plan.interval_s, self._clock.monotonic_s())
