"""Advertisements of Bluetooth sensors to values. Pure.

Known are Ruuvi (data formats 3 and 5), BTHome version 2, and Xiaomi's thermometers with the free
firmware (ATC and pvvx) or their own (MiBeacon). What is unknown is nothing, and so is what is
encrypted: `sealed_beacons` opens it before.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

from edgewake.protocol.frames.frame import Scalar

RUUVI: Final = 0x0499
"""Company identifier."""
BTHOME: Final = "0000fcd2-0000-1000-8000-00805f9b34fb"
ENVIRONMENT: Final = "0000181a-0000-1000-8000-00805f9b34fb"
UNITS: Final[Mapping[str, str]] = {
    "rssi": "dBm", "temperature": "°C", "humidity": "%", "pressure": "hPa", "battery_v": "V",
    "battery": "%", "tx_power_dbm": "dBm", "illuminance": "lx", "dew_point": "°C",
    "mass_kg": "kg", "mass_lb": "lb", "energy": "kWh", "power": "W", "voltage": "V",
    "current": "A", "pm2_5": "µg/m³", "pm10": "µg/m³", "co2": "ppm", "tvoc": "µg/m³",
    "moisture": "%", "rotation": "°", "distance_mm": "mm", "distance_m": "m", "duration": "s",
    "speed": "m/s", "volume": "L", "volume_ml": "mL", "flow": "m³/h", "gas": "m³", "water": "L",
    "acceleration_x": "g", "acceleration_y": "g", "acceleration_z": "g", "acceleration": "m/s²",
    "gyroscope": "°/s", "conductivity": "µS/cm", "formaldehyde": "mg/m³",
}  # fmt: skip
"""Units of values by their names, which are the same in all formats."""
XIAOMI: Final = "0000fe95-0000-1000-8000-00805f9b34fb"


def decoded(
    makers: Mapping[int, bytes], services: Mapping[str, bytes]
) -> tuple[str, dict[str, Scalar]] | None:
    """Decode a beacon to its kind and values; None: nothing that is known.

    `makers`: company → data; `services`: UUID in lower case → data.
    """
    for kind, data, decode in (
        ("ruuvi", makers.get(RUUVI), ruuvi),
        ("bthome", services.get(BTHOME), bthome),
        ("atc", services.get(ENVIRONMENT), atc),
        ("xiaomi", services.get(XIAOMI), mibeacon),
    ):
        if data is None:
            continue
        try:
            values = decode(data)
        except (struct.error, IndexError, ValueError):
            continue
        if values:
            return kind, values
    return None


def ruuvi(data: bytes) -> dict[str, Scalar]:
    """Data formats 5 (RAWv2) and 3 (RAWv1)."""
    if data[0] == 5:
        return _ruuvi_5(data)
    if data[0] != 3:
        return {}
    humidity, whole, cents, pressure, x, y, z, battery = struct.unpack(">BBBHhhhH", data[1:14])
    sign = -1 if whole & 0x80 else 1
    return {
        "temperature": round(sign * ((whole & 0x7F) + cents / 100), 2),
        "humidity": humidity / 2,
        "pressure": (pressure + 50_000) / 100,
        "acceleration_x": x / 1000,
        "acceleration_y": y / 1000,
        "acceleration_z": z / 1000,
        "battery_v": battery / 1000,
    }


def _ruuvi_5(data: bytes) -> dict[str, Scalar]:
    """Each value has a pattern that says that there is none."""
    temperature, humidity, pressure, x, y, z, power, movements, number = struct.unpack(
        ">hHHhhhHBH", data[1:18]
    )
    none = -32_768

    def scaled(value: int, missing: int, by: float, digits: int) -> float | None:
        return None if value == missing else round(value * by, digits)

    return {
        "temperature": scaled(temperature, none, 0.005, 3),
        "humidity": scaled(humidity, 0xFFFF, 0.0025, 4),
        "pressure": None if pressure == 0xFFFF else (pressure + 50_000) / 100,
        "acceleration_x": scaled(x, none, 0.001, 3),
        "acceleration_y": scaled(y, none, 0.001, 3),
        "acceleration_z": scaled(z, none, 0.001, 3),
        "battery_v": None if power >> 5 == 0x7FF else round(1.6 + (power >> 5) / 1000, 3),
        "tx_power_dbm": None if power & 0x1F == 0x1F else (power & 0x1F) * 2 - 40,
        "movements": None if movements == 0xFF else movements,
        "number": None if number == 0xFFFF else number,
    }


_Object = tuple[str, int, bool, float]
BTHOME_OBJECTS: Final[Mapping[int, _Object]] = {
    0x00: ("packet", 1, False, 1), 0x01: ("battery", 1, False, 1),
    0x02: ("temperature", 2, True, 0.01), 0x03: ("humidity", 2, False, 0.01),
    0x04: ("pressure", 3, False, 0.01), 0x05: ("illuminance", 3, False, 0.01),
    0x06: ("mass_kg", 2, False, 0.01), 0x07: ("mass_lb", 2, False, 0.01),
    0x08: ("dew_point", 2, True, 0.01), 0x09: ("count", 1, False, 1),
    0x0A: ("energy", 3, False, 0.001), 0x0B: ("power", 3, False, 0.01),
    0x0C: ("voltage", 2, False, 0.001), 0x0D: ("pm2_5", 2, False, 1),
    0x0E: ("pm10", 2, False, 1), 0x12: ("co2", 2, False, 1), 0x13: ("tvoc", 2, False, 1),
    0x14: ("moisture", 2, False, 0.01), 0x2E: ("humidity", 1, False, 1),
    0x2F: ("moisture", 1, False, 1), 0x3A: ("button", 1, False, 1), 0x3C: ("dimmer", 2, False, 1),
    0x3D: ("count", 2, False, 1), 0x3E: ("count", 4, False, 1), 0x3F: ("rotation", 2, True, 0.1),
    0x40: ("distance_mm", 2, False, 1), 0x41: ("distance_m", 2, False, 0.1),
    0x42: ("duration", 3, False, 0.001), 0x43: ("current", 2, False, 0.001),
    0x44: ("speed", 2, False, 0.01), 0x45: ("temperature", 2, True, 0.1),
    0x46: ("uv_index", 1, False, 0.1), 0x47: ("volume", 2, False, 0.1),
    0x48: ("volume_ml", 2, False, 1), 0x49: ("flow", 2, False, 0.001),
    0x4A: ("voltage", 2, False, 0.1), 0x4B: ("gas", 3, False, 0.001),
    0x4C: ("gas", 4, False, 0.001), 0x4D: ("energy", 4, False, 0.001),
    0x4E: ("volume", 4, False, 0.001), 0x4F: ("water", 4, False, 0.001),
    0x50: ("timestamp", 4, False, 1), 0x51: ("acceleration", 2, False, 0.001),
    0x52: ("gyroscope", 2, False, 0.001), 0x57: ("temperature", 1, True, 1),
    0x58: ("temperature", 1, True, 0.35), 0x5C: ("power", 4, True, 0.01),
    0x5D: ("current", 2, True, 0.001), 0xF0: ("device_type", 2, False, 1),
    0xF1: ("firmware", 4, False, 1), 0xF2: ("firmware", 3, False, 1),
}  # fmt: skip
"""BTHome v2: object → name, bytes, signed?, factor."""
BTHOME_BITS: Final = {
    0x0F: "on", 0x10: "power_on", 0x11: "opening", 0x15: "battery_low", 0x16: "charging",
    0x17: "carbon_monoxide", 0x18: "cold", 0x19: "connected", 0x1A: "door", 0x1B: "garage_door",
    0x1C: "gas_detected", 0x1D: "heat", 0x1E: "light", 0x1F: "lock", 0x20: "moisture_detected",
    0x21: "motion", 0x22: "moving", 0x23: "occupancy", 0x24: "plug", 0x25: "presence",
    0x26: "problem", 0x27: "running", 0x28: "safety", 0x29: "smoke", 0x2A: "sound",
    0x2B: "tamper", 0x2C: "vibration", 0x2D: "window",
}  # fmt: skip
"""BTHome v2: objects that are true or false, one byte each."""
TEXT, RAW = 0x53, 0x54


def bthome(data: bytes) -> dict[str, Scalar]:
    """BTHome version 2. Objects after one that is unknown cannot be found."""
    if data[0] >> 5 != 2 or data[0] & 1:
        return {}  # another version, or encrypted
    found: dict[str, Scalar] = {}
    at = 1
    while at < len(data):
        kind = data[at]
        at += 1
        if kind in (TEXT, RAW):
            size = data[at]
            body = data[at + 1 : at + 1 + size]
            at += 1 + size
            _add(found, "text", body.decode("utf-8", "replace") if kind == TEXT else body.hex())
        elif kind in BTHOME_BITS:
            _add(found, BTHOME_BITS[kind], bool(data[at]))
            at += 1
        elif kind in BTHOME_OBJECTS:
            name, size, is_signed, factor = BTHOME_OBJECTS[kind]
            body = data[at : at + size]
            if len(body) < size:
                break
            value = int.from_bytes(body, "little", signed=is_signed)
            _add(found, name, value if factor == 1 else round(value * factor, 3))
            at += size
        else:
            break
    return found


def _add(found: dict[str, Scalar], name: str, value: Scalar) -> None:
    """Two of one kind: the second has a number."""
    number, free = 2, name
    while free in found:
        free, number = f"{name}_{number}", number + 1
    found[free] = value


def atc(data: bytes) -> dict[str, Scalar]:
    """Free firmware of Xiaomi's thermometers: pvvx' own format, and the first one (ATC1441)."""
    if len(data) == 15:
        temperature, humidity, volts, battery, number = struct.unpack("<hHHBB", data[6:14])
        return {
            "temperature": temperature / 100,
            "humidity": humidity / 100,
            "battery_v": volts / 1000,
            "battery": battery,
            "number": number,
        }
    if len(data) != 13:
        return {}
    temperature, humidity, battery, volts, number = struct.unpack(">hBBHB", data[6:13])
    return {
        "temperature": temperature / 10,
        "humidity": humidity,
        "battery_v": volts / 1000,
        "battery": battery,
        "number": number,
    }


MI_ENCRYPTED, MI_HAS_MAC, MI_HAS_CAPABILITY, MI_HAS_OBJECT = 0x0008, 0x0010, 0x0020, 0x0040


def is_encrypted(services: Mapping[str, bytes]) -> bool:
    """Is it BTHome or MiBeacon that only a key opens?"""
    own, xiaomi = services.get(BTHOME), services.get(XIAOMI)
    return bool(own and own[0] & 1) or bool(xiaomi and xiaomi[0] & MI_ENCRYPTED)


def mi_objects_at(data: bytes, control: int) -> int:
    """Where the objects of a MiBeacon begin. Raises IndexError."""
    at = 5 + (6 if control & MI_HAS_MAC else 0)
    if control & MI_HAS_CAPABILITY:
        at += 2 if data[at] & 0x20 else 1
    return at


def mibeacon(data: bytes) -> dict[str, Scalar]:
    """Xiaomi's own format, where it is not encrypted."""
    control, _device, number = struct.unpack("<HHB", data[:5])
    if control & MI_ENCRYPTED or not control & MI_HAS_OBJECT:
        return {}
    at = mi_objects_at(data, control)
    found: dict[str, Scalar] = {}
    while at + 3 <= len(data):
        kind, size = struct.unpack("<HB", data[at : at + 3])
        body = data[at + 3 : at + 3 + size]
        at += 3 + size
        decode = _MI.get(kind)
        if decode is not None and len(body) == size:
            found |= decode(body)
    return found | ({"number": number} if found else {})


def _signed(name: str, by: float) -> Callable[[bytes], dict[str, Scalar]]:
    return lambda body: {name: round(int.from_bytes(body, "little", signed=True) * by, 2)}


def _unsigned(name: str, by: float = 1) -> Callable[[bytes], dict[str, Scalar]]:
    return lambda body: {
        name: int.from_bytes(body, "little")
        if by == 1
        else round(int.from_bytes(body, "little") * by, 2)
    }


def _float(name: str) -> Callable[[bytes], dict[str, Scalar]]:
    return lambda body: {name: round(float(struct.unpack("<f", body)[0]), 2)}


_MI: Final[Mapping[int, Callable[[bytes], dict[str, Scalar]]]] = {
    0x1004: _signed("temperature", 0.1),
    0x1006: _unsigned("humidity", 0.1),
    0x1007: _unsigned("illuminance"),
    0x1008: _unsigned("moisture"),
    0x1009: _unsigned("conductivity"),
    0x100A: _unsigned("battery"),
    0x100D: lambda body: (
        _signed("temperature", 0.1)(body[:2]) | _unsigned("humidity", 0.1)(body[2:])
    ),
    0x1010: _unsigned("formaldehyde", 0.01),
    0x1012: _unsigned("on"),
    0x1014: lambda body: {"moisture_detected": body[0] > 0},
    0x1015: lambda body: {"smoke": body[0] > 0},
    0x4803: _unsigned("battery"),
    0x4805: _float("illuminance"),
    0x4A01: lambda body: {"battery_low": body[0] > 0},
    0x4A08: lambda body: {"motion": True} | _float("illuminance")(body),
    0x4C01: _float("temperature"),
    0x4C02: _unsigned("humidity"),
    0x4C03: _unsigned("battery"),
    0x4C08: _float("humidity"),
}
"""Kinds of objects that sensors send."""
