"""Which columns of a recording are its time, and how they are written: by evidence, never by hope.

Pure: a sample of rows in, a decision out. A column that is named so (`timestamp`, Date and Time,
year and month and day) and holds times is known; one that only looks so is guessed, and who sends
it is asked first. Day or month first is told by the values (13 is not a month), else by how evenly
time runs: the wrong order jumps by months.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from edgewake.protocol.frames.event_time import AUTO, ISO, NAMES, UNITS_MS, looks_like

VALUES_MAX: Final = 400
"""Values of a column that formats are tried on, from all over the sample."""
FITS: Final = 0.95
"""Share of the values that have to be times: the rest are rows without one."""
EVENLY: Final = 2.0
"""One order of day and month is right if time jumps this many times less than in the other."""
ELAPSED: Final = 0.999
"""Share of the steps in which a count of seconds may not go back."""
DATES: Final = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d",
    "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d %m %Y", "%m %d %Y",
    "%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%d-%m-%y", "%m-%d-%y",
    "%d/%b/%Y", "%d-%b-%Y", "%d %b %Y", "%d %B %Y", "%b %d %Y", "%b %d, %Y", "%B %d, %Y",
    "%A, %B %d, %Y",
)  # fmt: skip
CLOCKS: Final = (
    "%H:%M:%S", "%H:%M:%S.%f", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%H:%M:%S %z", "%H.%M.%S",
    "%H.%M",
)  # fmt: skip
WHOLE: Final = (
    "%d/%b/%Y:%H:%M:%S %z", "[%d/%b/%Y:%H:%M:%S %z]", "%a %b %d %H:%M:%S %Y",
    "%a, %d %b %Y %H:%M:%S %z", "%Y%m%d%H%M%S", "%Y%m%dT%H%M%S",
)  # fmt: skip
STYLES: Final = (
    *(f"{date} {clock}" for date in DATES for clock in CLOCKS),
    *(f"{date}, {clock}" for date in DATES for clock in CLOCKS),
    *WHOLE,
    *DATES,
)
PARTS: Final = (("year", "%Y"), ("month", "%m"), ("day", "%d"))
CLOCK_PARTS: Final = (("hour", "%H"), ("minute", "%M"), ("second", "%S"))
HINTS: Final = ("start", "pickup", "begin", "time", "date")
"""Words in the name of a column that tell which of several times is meant, best first."""
DAY_CHARS: Final = len("2026-01-31")
_HOUR_POINT: Final = re.compile(r"[T ][0-9]{2}\.")
"""`10.30` is half past ten to people, and a second part of ten to Python."""
RUNNING: Final = ("time", "elapsed", "seconds", "uptime", "run_")


class How(StrEnum):
    """How the time was found."""

    NAMED = "as you said"
    KNOWN = "by its name"
    GUESSED = "guessed by its values"
    NONE = "none found"


@dataclass(frozen=True, slots=True)
class TimeColumns:
    """What is taken for the time."""

    names: tuple[str, ...]
    """Columns whose values are joined with a space."""
    style: str
    """As `edgewake.protocol.frames.event_time.to_ms` takes it."""
    how: How
    unsure: str = ""
    """What the values do not tell, in a sentence for people."""
    is_elapsed: bool = False
    """Seconds since the recording began, not since 1970."""


def find(
    rows: Sequence[Mapping[str, Any]], named: Sequence[str] | None, style: str = AUTO
) -> TimeColumns:
    """The time of these rows.

    `named`: the columns that somebody said (none of them: there is no time); None: find them.
    `style`: as somebody said it, or auto.
    """
    if named is not None:
        return _named(rows, tuple(named), style)
    known = _by_name(rows, style) or _of_parts(rows)
    if known is not None:
        return known
    return (
        _by_values(rows, style)
        or _in_two(rows)
        or _elapsed(rows)
        or TimeColumns((), AUTO, How.NONE, "no column holds what is a time")
    )


def _named(rows: Sequence[Mapping[str, Any]], names: tuple[str, ...], style: str) -> TimeColumns:
    if not names or style != AUTO:
        return TimeColumns(names, style, How.NAMED)
    found = style_of(joined(rows, names))
    if found is None:
        return TimeColumns(names, AUTO, How.NAMED)
    return TimeColumns(names, found[0], How.NAMED, found[1])


def _by_name(rows: Sequence[Mapping[str, Any]], style: str) -> TimeColumns | None:
    by_lower = {name.lower(): name for name in reversed(_names(rows))}
    candidates: list[tuple[str, ...]] = []
    if "date" in by_lower and "time" in by_lower:
        candidates.append((by_lower["date"], by_lower["time"]))
    candidates += [(by_lower[name],) for name in NAMES if name in by_lower]
    for names in candidates:
        found = _fitting(rows, names, style)
        if found is not None:
            return TimeColumns(names, found[0], How.KNOWN, found[1])
    return None


def _of_parts(rows: Sequence[Mapping[str, Any]]) -> TimeColumns | None:
    by_lower = {name.lower(): name for name in _names(rows)}
    if not all(part in by_lower for part, _ in PARTS):
        return None
    used = list(PARTS)
    for part, pattern in CLOCK_PARTS:
        if part not in by_lower:
            break
        used.append((part, pattern))
    names = tuple(by_lower[part] for part, _ in used)
    style = " ".join(pattern for _, pattern in used)
    fits = _fitting(rows, names, style)
    return TimeColumns(names, style, How.KNOWN) if fits else None


def _by_values(rows: Sequence[Mapping[str, Any]], style: str) -> TimeColumns | None:
    found = []
    for place, name in enumerate(_names(rows)):
        fits = _fitting(rows, (name,), style)
        if fits is not None:
            has_clock = fits[0] in UNITS_MS or "%M" in fits[0]
            if fits[0] == ISO:
                has_clock = any(len(str(row.get(name))) > DAY_CHARS for row in rows)
            rank = (not has_clock, name.count("."), _hint(name), place)
            found.append((rank, name, fits))
    if not found:
        return None
    _, name, (written, unsure) = min(found)
    return TimeColumns((name,), written, How.GUESSED, unsure)


def _in_two(rows: Sequence[Mapping[str, Any]]) -> TimeColumns | None:
    """A time with a blank in it, where blanks part the columns."""
    for names in pairwise(_names(rows)):
        values = [str(value) for value in joined(rows, names)]
        spread = values[:: max(1, len(values) // VALUES_MAX)]
        if not spread or not any(one.isdigit() for one in spread[0]):
            continue
        for style in STYLES:
            if " " in style and _share(spread, style) >= FITS:
                return TimeColumns(names, style, How.GUESSED)
    return None


def _hint(name: str) -> int:
    lower = name.lower()
    return next((n for n, word in enumerate(HINTS) if word in lower), len(HINTS))


def _elapsed(rows: Sequence[Mapping[str, Any]]) -> TimeColumns | None:
    """A count of seconds from about 0 on, in a column whose name says so or in the first one."""
    for place, name in enumerate(_names(rows)):
        values = [row[name] for row in rows if row.get(name) is not None]
        if place and not any(word in name.lower() for word in RUNNING):
            continue
        if len(values) < 2 or not all(_is_number(value) for value in values):
            continue
        back = sum(after < before for before, after in pairwise(values))
        runs = 0 <= values[0] < 1 < values[-1]
        if runs and back <= (1 - ELAPSED) * len(values):
            return TimeColumns((name,), "s", How.GUESSED, is_elapsed=True)
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def joined(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> list[Any]:
    """The values of one column, or of several joined with a space; incomplete rows are left out."""
    if len(names) == 1:
        return [row[names[0]] for row in rows if row.get(names[0]) is not None]
    return [
        " ".join(str(row[name]) for name in names)
        for row in rows
        if all(row.get(name) is not None for name in names)
    ]


def _fitting(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], style: str
) -> tuple[str, str] | None:
    values = joined(rows, names)
    if style == AUTO:
        return style_of(values)
    spread = values[:: max(1, len(values) // VALUES_MAX)]
    return (style, "") if spread and _share(spread, style) >= FITS else None


# --- how times are written ------------------------------------------------------------------------


def style_of(values: Sequence[Any]) -> tuple[str, str] | None:
    """(how these values are written, what they do not tell); None where they are no times."""
    spread = values[:: max(1, len(values) // VALUES_MAX)]
    if not spread:
        return None
    if all(_is_number(value) for value in spread):
        return _unit(spread)
    texts = [str(value) for value in spread]
    if sum(_is_iso(text) for text in texts) >= FITS * len(texts):
        return ISO, ""
    fitting = [style for style in STYLES if _share(texts, style) >= FITS]
    if not fitting:
        return None
    if len(fitting) == 1:
        return fitting[0], ""
    return _evenest(fitting[:2], [str(value) for value in values])


def _unit(values: Sequence[Any]) -> tuple[str, str] | None:
    units = [looks_like(value) for value in values]
    best = max(set(units), key=units.count)
    if best in UNITS_MS and units.count(best) >= FITS * len(units):
        return best, ""
    return None


def _is_iso(text: str) -> bool:
    if not text[:4].isdigit() or len(text) < DAY_CHARS or _HOUR_POINT.search(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _share(values: Sequence[Any], style: str) -> float:
    if all(_moment(value, style) is None for value in (values[0], values[-1])):
        return 0.0
    allowed = (1 - FITS) * len(values)
    failed = 0
    for value in values:
        if _moment(value, style) is None:
            failed += 1
            if failed > allowed:
                return 0.0
    return 1 - failed / len(values)


def _moment(value: Any, style: str) -> datetime | None:
    if style in UNITS_MS:
        return datetime.fromtimestamp(0, UTC) if looks_like(value) == style else None
    try:
        if style == ISO:
            return datetime.fromisoformat(str(value))
        return datetime.strptime(str(value), style)  # noqa: DTZ007  (only its order counts)
    except ValueError:
        return None


def _evenest(styles: Sequence[str], values: Sequence[str]) -> tuple[str, str]:
    """The style in which time moves least, if by far; else the first, and that it is unsure."""
    moved = [_movement(values, style) for style in styles]
    order = sorted(range(len(styles)), key=lambda n: moved[n])
    least, next_ = order[0], order[1]
    if moved[next_] > EVENLY * moved[least]:
        return styles[least], ""
    example = values[0]
    return styles[0], f"{example!r} may be written {styles[0]} or {styles[1]}"


def _movement(values: Sequence[str], style: str) -> float:
    moments = [_moment(value, style) for value in values[:: max(1, len(values) // 5_000)]]
    known = [one.replace(tzinfo=None) for one in moments if one is not None]
    return sum(abs((after - before).total_seconds()) for before, after in pairwise(known))
