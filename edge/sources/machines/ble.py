"""Listens to Bluetooth sensors that advertise what they measure, by bleak: Ruuvi, BTHome, Xiaomi.

A sensor says the same several times a second: of each, at most one reading is taken in
`interval_s`, and one that says nothing new waits ten times as long. Nothing is connected to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal

from bleak import BleakScanner
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from bleak.exc import BleakError

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.sources.machines.beacons import UNITS, decoded
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError, RejectReason
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.plain import key

WAITING_MAX: Final = 1_000
"""Readings that wait for the log; those after them are dropped, counted."""
SENSORS_MAX: Final = 1_000
"""Sensors that are remembered: phones change their address without end."""
REPEAT_AFTER: Final = 10
"""Intervals after which what is not new is taken all the same."""


class BleConfig(SourceConfig):
    """Bluetooth sensors that advertise their values: Ruuvi, BTHome, Xiaomi."""

    type: Literal["ble"]
    interval_s: float = key(default=10.0, ge=0, le=3600)
    """Seconds in which at most one reading of each sensor is taken."""
    names: dict[str, str] = key(default_factory=dict)
    """Addresses → names: `{ "C1:45:12:AA:BB:CC" = "cellar" }`; the field `thing` has it."""
    only_named: bool = False
    """Is only what `names` has taken? Neighbours' sensors are heard, too."""
    silence_s: float = key(default=600.0, gt=0, le=86_400)
    """Seconds without any advertisement after which the adapter is asked again."""

    def source(self, context: SourceContext) -> Ble:
        return Ble(self, context.clock)

    def owns(self) -> str:
        return "Bluetooth"


class Heard:
    """What of the advertisements is taken. Decides; no I/O."""

    def __init__(self, config: BleConfig) -> None:
        self._config = config
        self._names = {address.upper(): name for address, name in config.names.items()}
        self._last: dict[str, tuple[float, Mapping[str, Scalar]]] = {}

    def take(
        self,
        address: str,
        makers: Mapping[int, bytes],
        services: Mapping[str, bytes],
        rssi: int,
        now_s: float,
    ) -> dict[str, Any] | None:
        """A reading; None: nothing that is known, or nothing new."""
        name = self._names.get(address.upper())
        if name is None and self._config.only_named:
            return None
        found = decoded(makers, services)
        if found is None:
            return None
        kind, values = found
        last_s, last = self._last.get(address, (-1e9, {}))
        wait_s = self._config.interval_s * (REPEAT_AFTER if values == last else 1)
        if now_s - last_s < wait_s:
            return None
        self._last.pop(address, None)
        self._last[address] = (now_s, values)
        if len(self._last) > SENSORS_MAX:
            del self._last[next(iter(self._last))]
        return {"thing": name or address.replace(":", "-"), "kind": kind, "rssi": rssi, **values}


class Ble:
    """Listens to advertisements, and queues a reading for each that it knows."""

    policy = Policy.DROP_NEWEST

    def __init__(self, config: BleConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._heard = Heard(config)

    async def run(self, intake: Intake) -> None:
        waiting: deque[dict[str, Any]] = deque()
        came = asyncio.Event()

        def on_advertisement(device: BLEDevice, told: AdvertisementData) -> None:
            came.set()
            body = self._heard.take(
                device.address,
                told.manufacturer_data,
                {uuid.lower(): data for uuid, data in told.service_data.items()},
                told.rssi,
                self._clock.monotonic_s(),
            )
            if body is None:
                return
            if len(waiting) == WAITING_MAX:
                intake.refuse(RejectReason.QUOTA, "no room for a reading")
                return
            waiting.append(body | {"t": self._clock.now_ms()})

        try:
            async with BleakScanner(on_advertisement):
                while True:
                    await self._next(came)
                    bodies = list(waiting)
                    waiting.clear()
                    known = (name for body in bodies for name in body if name in UNITS)
                    intake.note_units({name: UNITS[name] for name in known})
                    await intake.put(intake.check_all(bodies))
        except (BleakError, OSError) as error:
            raise LocalError(f"Bluetooth: {error}") from error

    async def _next(self, came: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._config.silence_s):
                await came.wait()
        except TimeoutError as error:
            raise LocalError(
                f"Bluetooth: nothing heard for {self._config.silence_s:.0f} s"
            ) from error
        came.clear()
