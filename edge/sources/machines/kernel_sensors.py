"""Reads the sensors that the kernel shows as files: hwmon, iio, and thermometers on 1-Wire.

hwmon has temperatures, fans and voltages; iio has sensors on I²C and SPI: light, pressure,
humidity.

A sensor whose file cannot be read now is null in that reading; one that is plugged in is found at
the next one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

from edgewake.edge.daemon_thread import DaemonThread
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceConfig, SourceContext
from edgewake.protocol.errors import LocalError
from edgewake.protocol.plain import key

log = logging.getLogger("edgewake.source")

FILE_BYTES_MAX: Final = 256
"""Bytes of a file that are read: it holds a number, or a thermometer's two lines."""
SENSORS_MAX: Final = 200
"""Fields of a reading; sensors after them are left out, and said."""
HWMON: Final = re.compile(r"(temp|in|fan|curr|power|humidity|energy)\d+_input")
PER_UNIT: Final[Mapping[str, float]] = {
    "temp": 1e3, "in": 1e3, "fan": 1.0, "curr": 1e3, "power": 1e6, "humidity": 1e3, "energy": 1e6,
}  # fmt: skip
"""hwmon: how many of the file's units make one °C, V, rpm, A, W, % or J (the kernel's
Documentation/hwmon/sysfs-interface)."""
IIO: Final = re.compile(r"in_([a-z_]+?)(\d*)_(raw|input)")
HWMON_UNITS: Final[Mapping[str, str]] = {
    "temp": "°C", "in": "V", "fan": "rpm", "curr": "A", "power": "W", "humidity": "%",
    "energy": "J",
}  # fmt: skip
IIO_PER_UNIT: Final[Mapping[str, float]] = {
    "temp": 1e3, "voltage": 1e3, "current": 1e3, "humidityrelative": 1e3,
}  # fmt: skip
"""iio: its milli-units; all others are in plain units already."""
IIO_UNITS: Final[Mapping[str, str]] = {
    "temp": "°C", "voltage": "V", "current": "A", "humidityrelative": "%", "illuminance": "lx",
    "pressure": "kPa", "accel_x": "m/s²", "accel_y": "m/s²", "accel_z": "m/s²",
    "anglvel_x": "rad/s", "anglvel_y": "rad/s", "anglvel_z": "rad/s",
}  # fmt: skip
"""iio: what is left then (the kernel's Documentation/ABI/testing/sysfs-bus-iio)."""
ONE_WIRE_C: Final = re.compile(rb"t=(-?\d+)")


class KernelSensorsConfig(SourceConfig):
    """Sensors that Linux knows: hwmon, iio (I²C, SPI), 1-Wire thermometers."""

    type: Literal["kernel_sensors"]
    interval_s: float = key(default=10.0, ge=0.1, le=86_400)
    """Seconds from one reading to the next. A thermometer on 1-Wire takes most of a second."""
    only: str = ""
    """Regular expression that a field's name must match as a whole; empty: all sensors."""
    sys: Path = Path("/sys")
    """Where the kernel's file system is."""

    def __post_init__(self) -> None:
        try:
            re.compile(self.only)
        except re.error as error:
            raise ValueError(f"only: no regular expression: {error}") from error

    def source(self, context: SourceContext) -> KernelSensors:
        return KernelSensors(self, context)


class KernelSensors:
    """Reads the sensors at each interval."""

    policy = Policy.DROP_NEWEST

    def __init__(self, config: KernelSensorsConfig, context: SourceContext) -> None:
        self._config = config
        self._clock = context.clock

    async def run(self, intake: Intake) -> None:
        with DaemonThread("kernel_sensors") as thread:
            due_s = self._clock.monotonic_s()
            while True:
                found, units = await thread.call(
                    lambda: measured(self._config.sys, self._config.only)
                )
                if not found:
                    raise LocalError(
                        f"{self._config.sys}: no sensor (class/hwmon, bus/iio, bus/w1)"
                    )
                intake.note_units(units)
                reading = intake.check(found)
                if reading is not None:
                    await intake.put([reading])
                due_s = max(due_s + self._config.interval_s, self._clock.monotonic_s())
                await self._clock.sleep(due_s - self._clock.monotonic_s())


class Sensor(NamedTuple):
    """What one sensor says now."""

    name: str
    value: float | None
    unit: str


def measured(sys: Path, only: str = "") -> tuple[dict[str, float | None], dict[str, str]]:
    """Every sensor's value by its name, and the units that are known. Blocking."""
    wanted = re.compile(only or ".*")
    found: dict[str, float | None] = {}
    units: dict[str, str] = {}
    for one in (*_hwmon(sys), *_iio(sys), *_one_wire(sys)):
        if wanted.fullmatch(one.name) and len(found) < SENSORS_MAX:
            name = _free(one.name, found)
            found[name] = one.value
            if one.unit:
                units[name] = one.unit
    return found, units


def _free(name: str, taken: Mapping[str, object]) -> str:
    """Two chips of one kind: the second has a number."""
    if name not in taken:
        return name
    names = (f"{name}_{number}" for number in range(2, SENSORS_MAX + 2))
    return next(free for free in names if free not in taken)


def _hwmon(sys: Path) -> Iterator[Sensor]:
    for chip in _sorted(sys / "class/hwmon"):
        kind = _read(chip / "name") or chip.name
        for file in _sorted(chip):
            matched = HWMON.fullmatch(file.name)
            if matched is None:
                continue
            base = file.name.removesuffix("_input")
            label = _read(chip / f"{base}_label") or base
            value = _number(_read(file))
            scaled = None if value is None else value / PER_UNIT[matched[1]]
            yield Sensor(_name(kind, label), scaled, HWMON_UNITS[matched[1]])


def _iio(sys: Path) -> Iterator[Sensor]:
    for device in _sorted(sys / "bus/iio/devices"):
        kind = _read(device / "name") or device.name
        for file in _sorted(device):
            matched = IIO.fullmatch(file.name)
            if matched is None:
                continue
            what, channel, style = matched[1], matched[2], matched[3]
            value = _number(_read(file))
            if value is not None and style == "raw":
                offset = _shared(device, f"in_{what}{channel}", f"in_{what}", "offset", 0.0)
                scale = _shared(device, f"in_{what}{channel}", f"in_{what}", "scale", 1.0)
                value = (value + offset) * scale
            per_unit = IIO_PER_UNIT.get(what, 1.0)
            scaled = None if value is None else value / per_unit
            yield Sensor(_name(kind, f"{what}{channel}"), scaled, IIO_UNITS.get(what, ""))


def _shared(device: Path, own: str, all_of: str, what: str, default: float) -> float:
    """A setting of a channel, or of all channels of its kind."""
    for base in (own, all_of):
        value = _number(_read(device / f"{base}_{what}"))
        if value is not None:
            return value
    return default


def _one_wire(sys: Path) -> Iterator[Sensor]:
    for device in _sorted(sys / "bus/w1/devices"):
        if (device / "temperature").exists():
            value = _number(_read(device / "temperature"))
        elif (device / "w1_slave").exists():
            value = _old_thermometer(device / "w1_slave")
        else:
            continue
        yield Sensor(_name("w1", device.name), None if value is None else value / 1000, "°C")


def _old_thermometer(file: Path) -> float | None:
    """Two lines: the first ends with YES where the checksum is right."""
    text = _bytes(file)
    matched = ONE_WIRE_C.search(text)
    return float(matched[1]) if matched is not None and b"YES" in text else None


def _name(kind: str, what: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", f"{kind}_{what}").strip("_")


def _sorted(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(FILE_BYTES_MAX)
    except OSError:
        return b""


def _read(file: Path) -> str:
    return _bytes(file).decode("utf-8", "replace").strip()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
