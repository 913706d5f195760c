"""How a recording is understood, before any row is sent: columns, time, devices, faults.

`look` reads the first rows and decides; a person sees the result as a table (`look_table`). What
had to be guessed is said in `guesses`, with the option that would say it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from edgewake.protocol.frames.field_names import Names
from edgewake.simulators.recordings import time_columns
from edgewake.simulators.recordings.readings import Columns, Odd, Reading, field_of, to_readings
from edgewake.simulators.recordings.rows import BadRow, FileFormat, Row, Tally, rows
from edgewake.simulators.recordings.time_columns import How, TimeColumns

LOOK_ROWS: Final = 10_000
"""Rows that are looked at."""
BAD_SHOWN: Final = 3
DEVICE_WORDS: Final = (
    "device", "vehicle", "sensor", "station", "meter", "machine", "unit", "icao24", "customer",
    "session", "bike", "node", "tag", "serial", "id",
)  # fmt: skip
"""Words in the name of a column that probably names the device."""
BESIDE: Final = frozenset({"id", "no", "nr", "number", "name", "key", "code", "address"})
"""Words that may stand beside one of these."""
_WORDS: Final = re.compile("[A-Z]?[a-z0-9]+|[A-Z]+")
REPEATED: Final = 2.0
"""Rows of a device, on average, that a column needs to look like the device's name."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column, as it will be sent."""

    name: str
    field: str
    """Its name in the stream; empty for the time's and the device's, which are no fields."""
    kind: str
    filled: int
    """Rows that have a value."""
    sample: str


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen in the first rows."""

    kind: FileFormat
    rows: int
    """Looked at, bad ones too."""
    is_whole: bool
    """Were these all?"""
    columns: tuple[Column, ...]
    time: TimeColumns
    meaning: Columns
    first_ms: int | None
    last_ms: int | None
    devices: int
    bad: int
    first_bad: tuple[BadRow, ...]
    tally: Tally
    odd: Odd
    guesses: tuple[str, ...]
    """What nobody said and the file does not tell for sure: sentences with the option to use."""
    hints: tuple[str, ...] = field(default=())
    """What a person may want to know."""


def look(
    path: Path,
    kind: FileFormat,
    names: Sequence[str] | None,
    time_fields: Sequence[str] | None,
    meaning: Columns,
) -> Look:
    """Look at a file.

    `names`: of the columns, as somebody said them; `time_fields` as well (none of them: there is no
    time). Raises UnreadableFile, and ValueError where a column that was named is not there.
    """
    tally = Tally()
    reading = rows(path, kind, tally, columns=names)
    seen = list(islice(reading, LOOK_ROWS))
    good = [row for row in seen if not isinstance(row, BadRow)]
    present = list(dict.fromkeys(name for _, values in good for name in values))
    _check_names(present, [*(time_fields or ()), *filter(None, [meaning.device_field])])
    values = [row for _, row in good]
    time = time_columns.find(values, time_fields, meaning.time_format)
    meaning = replace(meaning, time_fields=time.names, time_format=time.style)
    odd = Odd()
    found = list(to_readings(seen, meaning, odd))
    readings = [one for one in found if isinstance(one, Reading)]
    bad = [one for one in found if isinstance(one, BadRow)]
    is_whole = next(reading, None) is None
    return Look(
        kind=kind,
        rows=len(seen),
        is_whole=is_whole,
        columns=_columns(present, values, meaning, tally),
        time=time,
        meaning=meaning,
        first_ms=min((one.t for one in readings), default=None),
        last_ms=max((one.t for one in readings), default=None),
        devices=len({one.device for one in readings}),
        bad=len(bad),
        first_bad=tuple(bad[:BAD_SHOWN]),
        tally=tally,
        odd=odd,
        guesses=_guesses(time, tally, good),
        hints=_hints(present, values, meaning, is_whole),
    )


def _check_names(present: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if present and name not in present:
            raise ValueError(f"no column {name!r}; there are {', '.join(present)}")


def _columns(
    present: Sequence[str], rows: Sequence[Mapping[str, Any]], meaning: Columns, tally: Tally
) -> tuple[Column, ...]:
    legal = Names()
    own = {*meaning.time_fields, meaning.device_field}
    found = []
    for name in present:
        values = [row[name] for row in rows if row.get(name) is not None]
        found.append(
            Column(
                name,
                "" if name in own else field_of(name, present, legal),
                str(tally.kinds.get(name) or _kind(values)),
                len(values),
                str(values[0]) if values else "",
            )
        )
    return tuple(found)


def _kind(values: Sequence[Any]) -> str:
    kinds = {_KINDS.get(type(value), "text") for value in values}
    return " or ".join(sorted(kinds)) or "empty"


_KINDS: Final = {
    int: "number", float: "number", str: "text", bool: "true or false", list: "list, as text",
}  # fmt: skip


def _guesses(time: TimeColumns, tally: Tally, rows: Sequence[Row]) -> tuple[str, ...]:
    found = []
    if time.how is How.NONE and rows:
        found.append("no time was found: --time-field COLUMN, or --time-field - for a row a second")
    if time.how is How.GUESSED:
        counts = ", which counts seconds" if time.is_elapsed else ""
        written = "" if time.is_elapsed else f", written {time.style}"
        found.append(
            f"{' and '.join(time.names)} is taken for the time{counts}{written}: "
            f"--time-field '{','.join(time.names)}'"
        )
    if time.unsure and time.how is not How.NONE:
        found.append(f"{time.unsure}: --time-format '{time.style}'")
    shape = tally.shape
    if shape is not None and not shape.is_named:
        found.append(
            f"no line names the {len(shape.names)} columns: --columns {','.join(shape.names[:2])},…"
        )
    return tuple(found)


def _hints(
    present: Sequence[str], rows: Sequence[Mapping[str, Any]], meaning: Columns, is_whole: bool
) -> tuple[str, ...]:
    if meaning.device_field is not None:
        return ()
    for word in DEVICE_WORDS:
        for name in present:
            if name in meaning.time_fields or not _names_devices(name, word):
                continue
            values = [row[name] for row in rows if row.get(name) is not None]
            if any(isinstance(value, float | list) for value in values):
                continue
            count = len(set(values))
            if len(values) >= REPEATED * count and (count > 1 or not is_whole):
                told = f"{count} value{'' if count == 1 else 's'}"
                return (f"{name} has {told} here: --device-field '{name}' makes them devices",)
    return ()


def _names_devices(name: str, word: str) -> bool:
    words = {part.lower() for part in _WORDS.findall(name)}
    return word in words and words <= {word, *BESIDE}


def refusal(found: Look, *, keeps_times: bool) -> str | None:
    """Why this cannot be sent at all; None where it can.

    `keeps_times`: the recorded times are sent, not moved to now.
    """
    if found.bad == found.rows:
        first = found.first_bad[0] if found.first_bad else None
        why = "" if first is None else f"; line {first.line}: {first.reason}"
        return f"none of the first {found.rows} rows can be read{why}"
    if keeps_times and found.time.is_elapsed:
        return (
            f"{found.time.names[0]} counts from the recording's own beginning, and no day is known:"
            " leave --times recorded out"
        )
    if keeps_times and not found.time.names:
        return "rows without a time have no recorded times: leave --times recorded out"
    return None
