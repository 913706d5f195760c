"""Decodes SenML (RFC 8428): `payload = "senml"` is its JSON, `senml-cbor` its CBOR. Pure.

Base fields are resolved: each record has its full name, time, unit and value. Records of one base
name and time become one reading:

    {"name": "urn:dev:mac:0024befffe804ff1/", "time": 1276020076.0, "fields": {"voltage": 120.1},
     "units": {"voltage": "V"}}

Times before 2^28 are relative to now (section 4.5.3). A pack of a later version, or with a label
that must be understood, is refused (sections 4.4 and 4.5.4).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.event_time import SECONDS_MAX
from edgewake.protocol.maps.decoding import json_of
from edgewake.protocol.maps.rule import READINGS_MAX, Map

VERSION: Final = 10
RELATIVE_BELOW_S: Final = 2**28
VALUE: Final = "value"
"""Field name for a record that has only a base name."""
RECORDS_MAX: Final = 16 * READINGS_MAX
"""The most records of a pack."""


def decode(payload: bytes, _of: Map, now_ms: int) -> list[Any]:
    """Decodes a payload for maps. Raises Rejected."""
    return readings(payload, now_ms)


def readings(payload: bytes, now_ms: int) -> list[dict[str, Any]]:
    """Decodes a JSON pack that came at `now_ms` to readings. Raises Rejected."""
    return of_pack(json_of(payload), now_ms)


def of_pack(pack: Any, now_ms: int) -> list[dict[str, Any]]:
    """Makes readings of a pack that was decoded already. Raises Rejected."""
    if type(pack) is not list or not pack or not all(type(one) is dict for one in pack):
        raise Rejected(RejectReason.SHAPE, "SenML: expected a list of records")
    if len(pack) > RECORDS_MAX:
        raise Rejected(RejectReason.OVERSIZE, f"SenML: expected at most {RECORDS_MAX} records")
    reader = _Pack(now_ms)
    for number, one in enumerate(pack, 1):
        try:
            reader.take(one)
        except ValueError as error:
            raise Rejected(RejectReason.SHAPE, f"SenML record {number}: {error}") from error
    return list(reader.readings.values())


class _Pack:
    def __init__(self, now_ms: int) -> None:
        self._now_s = now_ms / 1000
        self._base: dict[str, Any] = {"bn": "", "bt": 0.0, "bu": "", "bv": 0.0, "bs": 0.0}
        self.readings: dict[tuple[str, float, int], dict[str, Any]] = {}
        self._seen: Counter[tuple[str, float, str]] = Counter()
        """How often a name and time occurred: each repeat, in another unit, is another reading."""

    def take(self, one: dict[str, Any]) -> None:
        """Adds one record. Raises ValueError."""
        for label in one:
            if label.endswith("_"):
                raise ValueError(f"label {label[:40]!r} must be understood, and is unknown")
        version = one.get("bver", VERSION)
        if type(version) is not int or version > VERSION:
            raise ValueError(f"bver {str(version)[:20]}: expected at most {VERSION}")
        for label, kind in (("bn", str), ("bt", float), ("bu", str), ("bv", float), ("bs", float)):
            if label in one:
                self._base[label] = _of(one, label, kind)
        base = self._base
        name = _of(one, "n", str) if "n" in one else ""
        fields = self._values(one, name or VALUE)
        if not fields:
            return
        time_s = base["bt"] + (_of(one, "t", float) if "t" in one else 0.0)
        if time_s < RELATIVE_BELOW_S:
            time_s += self._now_s
        if not 0 <= time_s <= SECONDS_MAX:
            raise ValueError(f"time {time_s:g}: expected 1970 to 2100, in seconds")
        own_name = name or VALUE
        again = self._seen[base["bn"], time_s, own_name]
        self._seen[base["bn"], time_s, own_name] += 1
        own = self.readings.setdefault(
            (base["bn"], time_s, again),
            {"name": base["bn"], "time": time_s, "fields": {}, "units": {}},
        )
        own["fields"] |= fields
        base_unit = base["bu"] if "v" in one else ""  # a base unit is of numbers, not of texts
        if unit := (_of(one, "u", str) if "u" in one else base_unit):
            own["units"][own_name] = unit

    def _values(self, one: dict[str, Any], name: str) -> dict[str, Any]:
        base = self._base
        found: dict[str, Any] = {}
        if "v" in one:
            found[name] = _of(one, "v", float) + base["bv"] if base["bv"] else _number(one["v"])
        elif "vs" in one:
            found[name] = _of(one, "vs", str)
        elif "vd" in one:
            found[name] = _of(one, "vd", str)
        elif "vb" in one:
            if type(one["vb"]) is not bool:
                raise ValueError("vb: expected true or false")
            found[name] = one["vb"]
        if "s" in one:
            found[f"{name}_sum"] = _of(one, "s", float) + base["bs"]
        return found


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("v: expected a number")
    return float(value) if type(value) is float else value


def _of(one: dict[str, Any], label: str, kind: type) -> Any:
    value = one[label]
    if kind is str:
        if type(value) is not str:
            raise ValueError(f"{label}: expected text")
        return value
    if type(value) not in (int, float):
        raise ValueError(f"{label}: expected a number")
    return float(value)
