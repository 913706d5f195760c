"""A recorded file as readings: which device, when, which fields.

Pure: rows in, readings or bad rows out.

Event times are the recorded ones, or moved so that the first is now and the distances are kept,
divided by the speed. Names that are not legal are made so by the rule of all ways in
(`edgewake.protocol.field_names`): `Speed (km/h)` becomes `Speed_km_h`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final
from zoneinfo import ZoneInfo

from edgewake.protocol.event_time import NAMES, to_ms
from edgewake.protocol.field_names import Names
from edgewake.protocol.names import is_device
from edgewake.simulators.recorded import BadRow, Row

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
    """What the columns mean."""

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


def guess_time_field(columns: Iterable[str]) -> str | None:
    """The column that is most likely the time."""
    by_lower = {name.lower(): name for name in reversed(list(columns))}
    return next((by_lower[name] for name in NAMES if name in by_lower), None)


def with_time_field(
    rows: Iterable[Row | BadRow], columns: Columns, named: str | None
) -> tuple[Columns, Iterator[Row | BadRow]]:
    """The columns with their time fields: as named (`A` or `A,B`; `-` for none), or guessed from
    the first good row.

    Raises ValueError where the named ones are not there.
    """
    rows = iter(rows)
    begun: list[Row | BadRow] = []
    first: Mapping[str, Any] = {}
    for row in rows:
        begun.append(row)
        if not isinstance(row, BadRow):
            first = row[1]
            break
    if named is None:
        guessed = guess_time_field(first)
        fields: tuple[str, ...] = () if guessed is None else (guessed,)
    else:
        fields = () if named == "-" else tuple(named.split(","))
    for name in (*fields, *filter(None, [columns.device_field])):
        if first and name not in first:
            raise ValueError(f"no column {name!r}; there are {', '.join(first)}")
    return replace(columns, time_fields=fields), chain(begun, rows)


def to_readings(rows: Iterable[Row | BadRow], columns: Columns) -> Iterator[Reading | BadRow]:
    """Each row as a reading with its recorded time."""
    names = Names()
    count = 0
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        line, values = row
        try:
            t = (
                parse_time(_joined(values, columns.time_fields), columns)
                if columns.time_fields
                else round(count * columns.every_s * 1000)
            )
            yield Reading(_device(values, columns), t, _fields(values, columns, names))
            count += 1
        except ValueError as error:
            yield BadRow(line, str(error))


def _joined(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    if any(values.get(name) is None for name in names):
        raise ValueError(f"no time in {' and '.join(names)}")
    return values[names[0]] if len(names) == 1 else " ".join(str(values[name]) for name in names)


def _device(values: Mapping[str, Any], columns: Columns) -> str:
    if columns.device_field is None:
        return columns.device
    value = values.get(columns.device_field)
    if value is None:
        raise ValueError(f"no device in {columns.device_field}")
    return legal_device(str(value))


def _fields(values: Mapping[str, Any], columns: Columns, names: Names) -> dict[str, Any]:
    left_out = {*columns.time_fields, columns.device_field}
    fields: dict[str, Any] = {}
    for name, value in _flat(values, ""):
        if (
            name in left_out
            or value is None
            or (isinstance(value, float) and not math.isfinite(value))
        ):
            continue
        fields[names.of(name)] = value
    if not fields:
        raise ValueError("no value in any field")
    return fields


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


# --- names ----------------------------------------------------------------------------------------


def legal_device(name: str) -> str:
    """A legal device id: what is not allowed becomes `-`. Raises ValueError."""
    legal = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-._")[:64]
    if not is_device(legal):
        raise ValueError(f"device {name[:40]!r}: expected a letter or a digit in it")
    return legal


def legal_stream(name: str) -> str:
    """A legal stream name: lower case, `_` for the rest."""
    legal = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:60]
    if not legal:
        return "replay"
    return legal if legal[0].isalpha() else f"s_{legal}"


# --- times ----------------------------------------------------------------------------------------


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
        """Seconds after the start at which a reading of time `t` is due; 0 for one from before the
        first.
        """
        if self._first_t is None:
            self._first_t = t
        return 0.0 if self._speed is None else max(0.0, (t - self._first_t) / 1000 / self._speed)

    def event_time(self, t: int, now_ms: int) -> int:
        """The time to send: the recorded one, the moved one, or now where `speed` does not scale
        it.
        """
        if not self._move:
            return t
        if self._speed is None or self._first_t is None:
            return now_ms
        return max(0, self._start_ms + round((t - self._first_t) / self._speed))
