"""Listens to Bluetooth sensors that advertise what they measure, by bleak: Ruuvi, BTHome, Xiaomi.

A sensor says the same several times a second: of each, at most one reading is taken in
`interval_s`, and one that says nothing new waits ten times as long. Nothing is connected to.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from bleak import BleakScanner
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from bleak.exc import BleakError

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.edge.sources.machines.beacons import UNITS, decoded, is_encrypted
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError, Rejected, RejectReason
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.plain import Check, key

if TYPE_CHECKING:
    from edgewake.edge.sources.machines.sealed_beacons import BeaconKeys

WAITING_MAX: Final = 1_000
"""Readings that wait for the log; those after them are dropped, counted."""
SENSORS_MAX: Final = 1_000
"""Sensors that are remembered: phones change their address without end."""
REPEAT_AFTER: Final = 10
"""Intervals after which what is not new is taken all the same."""
ADDRESS: Final = re.compile(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}")
KEY: Final = re.compile(r"[0-9A-Fa-f]{32}")


def _keys(given: dict[str, str]) -> dict[str, str]:
    """Raises ValueError; it does not say the key."""
    for address, one in given.items():
        if not ADDRESS.fullmatch(address):
            raise ValueError(f"{address!r}: expected an address like C1:45:12:AA:BB:CC")
        if not KEY.fullmatch(one):
            raise ValueError(f"{address}: expected a key of 32 hexadecimal digits")
    return {address.upper(): one for address, one in given.items()}


class BleConfig(SourceConfig):
    """Bluetooth sensors that advertise their values: Ruuvi, BTHome, Xiaomi."""

    type: Literal["ble"]
    interval_s: float = key(default=10.0, ge=0, le=3600)
    """Seconds in which at most one reading of each sensor is taken."""
    names: dict[str, str] = key(default_factory=dict)
    """Addresses → names: `{ "C1:45:12:AA:BB:CC" = "cellar" }`; the field `thing` has it."""
    keys: Annotated[dict[str, str], Check(_keys)] = key(default_factory=dict)
    """Addresses → keys of what they encrypt, 32 hexadecimal digits: BTHome version 2, and Xiaomi's
    MiBeacon 4 and 5 (the "bind key"). A sensor with a key is taken only encrypted, each
    advertisement once. They are secrets: give the file mode 0600."""
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
        self._keys: BeaconKeys | None = None
        if config.keys:
            from edgewake.edge.sources.machines.sealed_beacons import BeaconKeys

            self._keys = BeaconKeys(config.keys)

    def name(self, address: str) -> str:
        """What its readings say in `thing`."""
        return self._names.get(address.upper()) or address.replace(":", "-")

    def lacks_key(self, address: str, services: Mapping[str, bytes]) -> bool:
        """Does a sensor with a name encrypt what it says, and has no key here?"""
        if address.upper() not in self._names or not is_encrypted(services):
            return False
        return self._keys is None or not self._keys.has(address.upper())

    def take(
        self,
        address: str,
        makers: Mapping[int, bytes],
        services: Mapping[str, bytes],
        rssi: int,
        now_s: float,
    ) -> dict[str, Any] | None:
        """A reading; None: nothing that is known, or nothing new.

        Raises Rejected where a sensor's key does not open what it says, or it is a replay.
        """
        if self._config.only_named and address.upper() not in self._names:
            return None
        last_s, last = self._last.get(address, (-1e9, {}))
        if now_s - last_s < self._config.interval_s:
            return None
        if self._keys is not None and self._keys.has(address.upper()):
            makers, services = {}, self._keys.opened(address.upper(), services)
        found = decoded(makers, services)
        if found is None:
            return None
        kind, values = found
        wait_s = self._config.interval_s * (REPEAT_AFTER if values == last else 1)
        if now_s - last_s < wait_s:
            return None
        self._last.pop(address, None)
        self._last[address] = (now_s, values)
        if len(self._last) > SENSORS_MAX:
            del self._last[next(iter(self._last))]
        return {"thing": self.name(address), "kind": kind, "rssi": rssi, **values}


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
            body = self._taken(intake, device.address, told)
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

    def _taken(
        self, intake: Intake, address: str, told: AdvertisementData
    ) -> dict[str, Any] | None:
        """A reading; None: there is none. What is refused is counted, and said once a sensor."""
        services = {uuid.lower(): data for uuid, data in told.service_data.items()}
        now_s = self._clock.monotonic_s()
        try:
            body = self._heard.take(address, told.manufacturer_data, services, told.rssi, now_s)
        except Rejected as error:
            name = self._heard.name(address)
            intake.refuse(error.reason, f"{name}: {error.detail}", thing=name)
            intake.remark(f"{name}: {error.detail}")
            return None
        if body is None and self._heard.lacks_key(address, services):
            intake.remark(f"{self._heard.name(address)} encrypts what it says: it needs a key")
        return body

    async def _next(self, came: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._config.silence_s):
                await came.wait()
        except TimeoutError as error:
            raise LocalError(
                f"Bluetooth: nothing heard for {self._config.silence_s:.0f} s"
            ) from error
        came.clear()
