"""A recorded file as readings: which device, when, which fields.

Pure: rows in, readings or bad rows out.

Event times are the recorded ones, or moved so that the first is now and the distances are kept,
divided by the speed. Names that are not legal are made so by the rule of all ways in
(`edgewake.protocol.frames.field_names`): `Speed (km/h)` becomes `Speed_km_h`.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from zoneinfo import ZoneInfo

from edgewake.protocol.frames.event_time import to_ms
from edgewake.protocol.frames.field_names import ODD, Names
from edgewake.protocol.names import is_device
from edgewake.simulators.recordings.rows import BadRow, Row

SUFFIXED_CHARS: Final = 55
"""Characters of a device's name before a suffix of nine: an id has at most 64."""
SORT_ROWS_MAX: Final = 2_000_000
"""Rows that can be sorted by time, in memory: about 2 GB. More is refused."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading to send. `t` is in ms since 1970 UTC."""

    device: str
    t: int
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """The meaning of the columns."""

    device: str = "replay"
    """The device where no column names it."""
    device_field: str | None = None
    time_fields: tuple[str, ...] = ()
    """Joined with a space; none: rows come `every_s` apart, from 1970 on."""
    time_format: str = "auto"
    """auto, s, ms, us, ns, iso, or a pattern of strptime."""
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    """Zone of times that do not say theirs."""
    every_s: float = 1.0


@dataclass(slots=True)
class Odd:
    """What was decided about single rows, for people."""

    twice: int = 0
    """Times of the hour that a zone has twice: the second one where the device's time would run
    back else."""
    never: int = 0
    """Times that a zone leaves out in spring: an hour later."""
    devices: dict[str, str] = field(default_factory=dict)
    """Names of devices that would have become one with another → what they are called."""


def to_readings(
    rows: Iterable[Row | BadRow], columns: Columns, odd: Odd | None = None
) -> Iterator[Reading | BadRow]:
    """Each row as a reading with its recorded time."""
    odd = odd or Odd()
    names = Names()
    devices = Devices(odd)
    times = Times(columns, odd)
    count = 0
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        line, values = row
        try:
            device = _device(values, columns, devices)
            t = (
                times.of(device, _joined(values, columns.time_fields))
                if columns.time_fields
                else round(count * columns.every_s * 1000)
            )
            yield Reading(device, t, _fields(values, columns, names))
            count += 1
        except ValueError as error:
            yield BadRow(line, str(error))


def _joined(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    if any(values.get(name) is None for name in names):
        raise ValueError(f"no time in {' and '.join(names)}")
    return values[names[0]] if len(names) == 1 else " ".join(str(values[name]) for name in names)


def _device(values: Mapping[str, Any], columns: Columns, devices: Devices) -> str:
    if columns.device_field is None:
        return columns.device
    value = values.get(columns.device_field)
    if value is None:
        raise ValueError(f"no device in {columns.device_field}")
    return devices.of(str(value))


def _fields(values: Mapping[str, Any], columns: Columns, names: Names) -> dict[str, Any]:
    left_out = {*columns.time_fields, columns.device_field}
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if (
            name in left_out
            or value is None
            or (isinstance(value, float) and not math.isfinite(value))
        ):
            continue
        fields[field_of(name, values, names)] = value
    if not fields:
        raise ValueError("no value in any field")
    return fields


def field_of(name: str, columns: Container[str], names: Names) -> str:
    """The legal name of a column's field; an odd value's text stands beside its own."""
    column = name.removesuffix(ODD)
    if column == name or column not in columns:
        return names.of(name)
    return names.of(names.of(column) + ODD)


# --- names ----------------------------------------------------------------------------------------


def legal_device(name: str) -> str:
    """A legal device id: what is not allowed becomes `-`. Raises ValueError."""
    legal = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64]
    if not is_device(legal):
        raise ValueError(f"device {name[:40]!r}: expected a letter or a digit in it")
    return legal


class Devices:
    """Legal ids of devices: one that would become another's gets a suffix made of its own name."""

    def __init__(self, odd: Odd) -> None:
        self._odd = odd
        self._ids: dict[str, str] = {}
        self._taken: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The id of a device as the file names it. Raises ValueError."""
        known = self._ids.get(name)
        if known is not None:
            return known
        made = legal_device(name)
        if self._taken.setdefault(made, name) != name:
            made = f"{made[:SUFFIXED_CHARS]}-{zlib.crc32(name.encode()):08x}"
            self._taken[made] = name
            self._odd.devices[name] = made
        self._ids[name] = made
        return made


def legal_stream(name: str) -> str:
    """A legal stream name: lower case, `_` for the rest."""
    legal = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:60]
    if not legal:
        return "replay"
    return legal if legal[0].isalpha() else f"s_{legal}"


# --- times ----------------------------------------------------------------------------------------


class Times:
    """The times of a recording, with the two odd hours of the year.

    In autumn a zone has an hour twice. A time of it is the first one, unless the device's own time
    would run back: then it is the second. In spring an hour is left out; what was written with it
    is an hour later.
    """

    def __init__(self, columns: Columns, odd: Odd) -> None:
        self._columns = columns
        self._odd = odd
        self._last: dict[str, int] = {}

    def of(self, device: str, value: Any) -> int:
        """A recorded time in ms since 1970 UTC. Raises ValueError."""
        t = first = parse_time(value, self._columns)
        second = self._second(value, first)
        if second > first:
            self._odd.twice += 1
            if first < self._last.get(device, 0):
                t = second
        elif second < first:
            self._odd.never += 1
        self._last[device] = max(t, self._last.get(device, 0))
        return t

    def _second(self, value: Any, first: int) -> int:
        """Read a time as the second one where its hour occurs twice."""
        zone = self._columns.zone
        if zone.key == "UTC" or not isinstance(value, str):
            return first
        return to_ms(value, self._columns.time_format, zone, fold=1)


def parse_time(value: Any, columns: Columns) -> int:
    """A recorded time in ms since 1970 UTC; raises ValueError."""
    return to_ms(value, columns.time_format, columns.zone)


# --- pace -----------------------------------------------------------------------------------------


def sorted_by_time(readings: Iterable[Reading | BadRow]) -> Iterator[Reading | BadRow]:
    """Bad rows first, then the readings in time order, those of one moment as in the file.

    Raises ValueError over SORT_ROWS_MAX.
    """
    kept = []
    for reading in readings:
        if isinstance(reading, BadRow):
            yield reading
            continue
        kept.append(reading)
        if len(kept) > SORT_ROWS_MAX:
            raise ValueError(
                f"more than {SORT_ROWS_MAX} rows cannot be sorted; sort the file before"
            )
    yield from sorted(kept, key=lambda reading: reading.t)


class Pace:
    """When to send a reading and which time to give it. `speed` None: as fast as it goes."""

    def __init__(self, *, speed: float | None, move_to_now: bool, start_ms: int) -> None:
        self._speed = speed
        self._move = move_to_now
        self._start_ms = start_ms
        self._first_t: int | None = None

    def offset_s(self, t: int) -> float:
        """When a reading of time `t` is due, in seconds after the start; at least 0."""
        if self._first_t is None:
            self._first_t = t
        return 0.0 if self._speed is None else max(0.0, (t - self._first_t) / 1000 / self._speed)

    def event_time(self, t: int, now_ms: int) -> int:
        """The time to send: the recorded one, the moved one, or now without scaled `speed`."""
        if not self._move:
            return t
        if self._speed is None or self._first_t is None:
            return now_ms
        return max(0, self._start_ms + round((t - self._first_t) / self._speed))
