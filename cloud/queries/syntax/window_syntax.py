"""Parses windows: window(…), tumble(…), hop(…), and date_trunc for the calendar's. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from sqlglot import exp

from edgewake.cloud.queries.syntax.pattern_syntax import PATTERNS, pattern
from edgewake.cloud.queries.terms.expressions import TIMES, sql_of, trunc_unit
from edgewake.cloud.queries.terms.windows import CALENDAR_UNITS, Window
from edgewake.protocol.errors import QueryError

SIZE_MS_MIN: Final = 100
SIZE_MS_MAX: Final = 31 * 86_400_000
"""A window of window(…) lasts from a tenth of a second to 31 days; the calendar's last up to a
year. Its state is kept as long."""
_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1_000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_CALENDAR_MS: Final = {
    "day": 90_000_000,
    "week": 608_400_000,
    "month": 31 * 86_400_000,
    "quarter": 92 * 86_400_000,
    "year": 366 * 86_400_000,
}
_MINUTE: Final = Window(size_ms=60_000, slide_ms=60_000)
NO_WINDOW: Final = _MINUTE
"""Stands where the window cannot be read, so that the rest can be checked."""
EXPECTED: Final = "window(event_time, '1 minute'[, '10 seconds'])"
COUNT_MAX: Final = 10_000
"""Readings of a window by count."""
COUNT_OVERLAP_MAX: Final = 120
"""Windows by count that a reading may be in."""
GAP_MS_MAX: Final = 7 * 86_400_000
"""The longest pause within a session. While a session lasts its state stays."""
_SEQUENCES: Final = ("session_window", "count_window")
_OTHERS: Final = {
    "cumulate": (
        f"expected {EXPECTED}: a row is emitted again with each reading, so windows grow anyway"
    ),
}


def duration_ms(text: str, what: str) -> int:
    """Milliseconds of `30 seconds`, `1 minute` …; raises QueryError."""
    match = re.fullmatch(
        r"(?:interval\s+)?(\d{1,9})\s*(" + "|".join(_UNITS_MS) + r")s?", text.strip(), re.IGNORECASE
    )
    if match is None:
        raise QueryError(
            f"{what} {text[:40]!r}: expected a number and a unit, e.g. '30 seconds', '1 minute', "
            "'1 hour'"
        )
    return int(match[1]) * _UNITS_MS[match[2].lower()]


def zone_of(text: str) -> str:
    """A zone's name; raises QueryError."""
    if text in _zones():
        return text
    close = get_close_matches(text, _zones(), n=1)
    raise QueryError(
        f"header zone {text[:60]!r}: expected a name as Europe/Berlin"
        + (f"; did you mean {close[0]!r}?" if close else "")
    )


@cache
def _zones() -> frozenset[str]:
    """All names of time zones.

    Python looks for 600 files to list them, 4 ms each time, and the registry reads each query again
    and again.
    """
    return frozenset(available_timezones())


def is_window(node: exp.Expr) -> bool:
    """Is it a function that makes windows?"""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in (
        "window",
        "tumble",
        "hop",
        *_SEQUENCES,
        *PATTERNS,
        *_OTHERS,
    )


def is_calendar(node: exp.Expr | None) -> bool:
    """Is it date_trunc of a reading's time? In GROUP BY it is a window where no other is."""
    return (
        isinstance(node, exp.TimestampTrunc)
        and isinstance(node.this, exp.Column)
        and node.this.name in TIMES
    )


def calendar(node: exp.Expr, zone: str) -> Window:
    """The window of a date_trunc."""
    unit = trunc_unit(node, "GROUP BY")
    time = TIMES[node.this.name]
    if unit in CALENDAR_UNITS:
        return Window(
            size_ms=_CALENDAR_MS[unit], slide_ms=_CALENDAR_MS[unit], unit=unit, zone=zone, time=time
        )
    size_ms = _UNITS_MS[unit]
    offset = datetime(2026, 1, 1, tzinfo=UTC).astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return Window(
        size_ms=size_ms,
        slide_ms=size_ms,
        offset_ms=-int(offset.total_seconds() * 1000) % size_ms,
        time=time,
    )


def window(node: exp.Expr) -> Window:
    """The window of a function. Raises QueryError."""
    name, arguments = str(node.this).lower(), node.expressions
    if name in _OTHERS:
        raise QueryError(f"GROUP BY {name}: {_OTHERS[name]}")
    if name in PATTERNS:
        return pattern(node, length_ms)
    if name == "count_window":
        return _by_count(node, arguments)
    if name == "session_window":
        return _session(node, arguments)
    time = _time(arguments[0] if arguments else None, node)
    if not 2 <= len(arguments) <= (4 if name == "window" else 3):
        raise QueryError(f"GROUP BY {sql_of(node)}: expected {EXPECTED}")
    lengths = [length_ms(one) for one in arguments[1:]]
    if name == "hop" and len(lengths) == 2:
        lengths = lengths[::-1]  # HOP takes the slide first
    names = [f"{sql_of(one)[:40]}" for one in arguments[1:]]
    if name == "tumble":
        lengths = [lengths[0], lengths[0], *lengths[1:]]  # TUMBLE has no slide
    size_ms, slide_ms = lengths[0], lengths[1] if len(lengths) > 1 else lengths[0]
    if not SIZE_MS_MIN <= size_ms <= SIZE_MS_MAX:
        raise QueryError(
            f"window size {names[0]}: expected from 100 milliseconds to 31 days; "
            "date_trunc('month', event_time) is the calendar's"
        )
    if not SIZE_MS_MIN <= slide_ms <= size_ms:
        raise QueryError(
            f"window slide {names[-1]}: expected from 100 milliseconds to the window's size"
        )
    offset_ms = lengths[-1] % slide_ms if len(lengths) == 3 else 0
    return Window(size_ms=size_ms, slide_ms=slide_ms, offset_ms=offset_ms, time=time)


def _session(node: exp.Expr, arguments: Sequence[exp.Expr]) -> Window:
    if len(arguments) != 2:
        raise QueryError(
            f"GROUP BY {sql_of(node)}: expected session_window(event_time, '5 minutes')"
        )
    gap_ms = length_ms(arguments[1])
    if not SIZE_MS_MIN <= gap_ms <= GAP_MS_MAX:
        raise QueryError(
            f"pause of a session {sql_of(arguments[1])}: expected from 100 milliseconds to 7 days"
        )
    return Window(size_ms=1, slide_ms=1, gap_ms=gap_ms, time=_time(arguments[0], node))


def _by_count(node: exp.Expr, arguments: Sequence[exp.Expr]) -> Window:
    whole = [
        int(one.this)
        for one in arguments
        if isinstance(one, exp.Literal) and not one.is_string and one.this.isdigit()
    ]
    if not 1 <= len(arguments) <= 2 or len(whole) != len(arguments):
        raise QueryError(
            f"GROUP BY {sql_of(node)}: expected count_window(100[, 10]): readings of a window, "
            "and from one to the next"
        )
    count, step = whole[0], whole[-1]
    if not 1 <= step <= count <= COUNT_MAX or count > step * COUNT_OVERLAP_MAX:
        raise QueryError(
            f"GROUP BY {sql_of(node)}: expected up to {COUNT_MAX} readings, and a step of 1 to as "
            "many, with a reading in at most"
            f" {COUNT_OVERLAP_MAX} windows"
        )
    return Window(size_ms=1, slide_ms=1, count=count, step=step)


def _time(node: exp.Expr | None, whole: exp.Expr) -> str:
    if isinstance(node, exp.CurrentTimestamp) or (
        isinstance(node, exp.Anonymous) and str(node.this).lower() == "now"
    ):
        raise QueryError(
            "GROUP BY window: results would differ when they are computed again; use event_time, "
            "received_at or sent_at"
        )
    if not isinstance(node, exp.Column) or node.name not in TIMES:
        raise QueryError(
            f"GROUP BY {sql_of(whole)}: expected {EXPECTED}, or received_at or sent_at in place "
            "of event_time"
        )
    return TIMES[node.name]


def length_ms(node: exp.Expr, what: str = "window size") -> int:
    """Milliseconds of `'30 seconds'` and `INTERVAL 1 MINUTE`; raises QueryError."""
    if (
        isinstance(node, exp.Interval)
        and isinstance(node.this, exp.Literal)
        and node.args.get("unit") is not None
    ):
        return duration_ms(f"{node.this.this} {node.args['unit'].name}", what)
    if isinstance(node, exp.Literal) and node.is_string:
        return duration_ms(str(node.this), what)
    raise QueryError(
        f"{what} {sql_of(node)}: expected a number and a unit, e.g. '30 seconds' or INTERVAL 1 "
        "MINUTE"
    )


def one_window(nodes: Sequence[exp.Expr]) -> exp.Expr:
    """The only one. Raises QueryError."""
    if len(nodes) != 1:
        raise QueryError(f"GROUP BY: expected one {EXPECTED}, or date_trunc('day', event_time)")
    return nodes[0]
