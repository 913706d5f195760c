"""When it happened: the times that devices write, as ms since 1970 UTC. Pure.

Two readers. `of_plain` is for `t`, which is in ms: what can only be seconds, micro- or nanoseconds
is seen by its size, and a number before 1971 is a measurement. `to_ms` is for a field that somebody
named, in a format that somebody said, or by its looks (`auto`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, TypeAlias

from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.field_names import put_over

TIME_MS_MAX: Final = 4_102_444_800_000
"""2100-01-01. Later event times are rejected; earlier wrong ones are clamped and flagged by the
analysis."""
SECONDS_MIN: Final = 946_684_800
"""2000-01-01 in seconds. A `t` from here to SECONDS_MAX would be a day of January or February 1970
in ms: it is seconds."""
SECONDS_MAX: Final = TIME_MS_MAX // 1000
CLOCK_SET_MS: Final = 365 * 86_400_000
"""1971-01-01. A machine whose clock was never set counts from the beginning of 1970."""
UNITS_MS: Final = {"s": 1000.0, "ms": 1.0, "us": 1e-3, "ns": 1e-6}
"""Milliseconds of each unit."""
_MS_FROM: Final = 1e11
"""Numbers below it are seconds: those of the year 5138, while milliseconds begin there in 1973."""
AUTO, ISO = "auto", "iso"
NAMES: Final = (
    "t",
    "ts",
    "time",
    "timestamp",
    "tst",
    "event_time",
    "datetime",
    "date_time",
    "time_ms",
    "last_seen",
    "date",
)
"""Fields that are taken for the time where none is named, in this order, whatever their case."""


def is_ms(t: int) -> bool:
    """May a device's integer be a time in ms as it is?

    Not before 1971: that is a measurement called `t`, or a clock that was not set.
    """
    return CLOCK_SET_MS <= t <= TIME_MS_MAX


def is_only_ms(value: int) -> bool:
    """Does `to_ms` take it for milliseconds by its size, as they are?"""
    return _MS_FROM <= value <= TIME_MS_MAX


def of_plain(t: object, zone: tzinfo | None = None) -> int | None:
    """A plain reading's `t` in ms; None where nobody can believe it."""
    if isinstance(t, int) and not isinstance(t, bool) and is_ms(t):
        return t
    form = looks_like(t)
    if form in UNITS_MS:
        return _scaled(t, form)  # type: ignore[arg-type]
    try:
        return of_device(t, zone=zone) if form else None
    except ValueError:  # such as year 1, which is some languages' word for no time
        return None


_UNITS_OF_T: Final = (
    ("s", SECONDS_MIN, SECONDS_MAX),
    ("ms", SECONDS_MIN * 10**3, SECONDS_MAX * 10**3),
    ("us", SECONDS_MIN * 10**6, SECONDS_MAX * 10**6),
    ("ns", SECONDS_MIN * 10**9, SECONDS_MAX * 10**9),
)
"""The range of each unit between the years 2000 and 2100: no two of them overlap."""
_PER_MS: Final = {"ms": 1, "us": 10**3, "ns": 10**6}


def _scaled(t: float, unit: str) -> int:
    if unit == "s":
        return round(t * 1000)
    return round(t) // _PER_MS[unit]


def to_ms(value: Any, style: str = AUTO, zone: tzinfo | None = None, *, fold: int = 0) -> int:
    """A time in ms since 1970 UTC.

    `style`: auto, s, ms, us, ns, iso, or a pattern of strptime; `zone`: of times that do not say
    theirs; `fold`: 1 where a time that the zone has twice in a year is the second one.

    Raises ValueError.
    """
    if style in UNITS_MS:
        ms = _number(value) * UNITS_MS[style]
    elif style == AUTO and not isinstance(value, str):
        ms = _number(value) * UNITS_MS[unit_of(_number(value))]
    else:
        ms = _calendar(str(value), style, zone, fold)
    if not 0 <= ms <= TIME_MS_MAX:
        raise ValueError(f"time {value!r}: expected 1970 to 2100")
    return round(ms)


def of_device(value: Any, style: str = AUTO, zone: tzinfo | None = None) -> int:
    """`to_ms` of what a running device says: its clock was not set if it says 1970.

    Raises ValueError.
    """
    found = to_ms(value, style, zone)
    if found < CLOCK_SET_MS:
        raise ValueError(f"time {str(value)[:40]!r}: a clock that was not set")
    return found


def looks_like(value: object) -> str:
    """The form of a value as a time: s, ms, us, ns, or iso with or without a zone.

    Empty where it is not a time. A number must be after 2000.
    """
    if isinstance(value, bool):
        return ""
    if isinstance(value, int | float):
        return next((unit for unit, least, most in _UNITS_OF_T if least <= value <= most), "")
    if not isinstance(value, str) or len(value) < _CLOCK_CHARS:  # a day without a time of day
        return ""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return ""
    return "iso" if moment.tzinfo is not None else "iso without a zone"


_CLOCK_CHARS: Final = len("2026-01-31T09:30")


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError(f"time {value!r}: expected a number")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"time {str(value)[:40]!r}: expected a number") from error


def unit_of(value: float) -> str:
    """The unit of a number by its size."""
    units = ((_MS_FROM, "s"), (1e14, "ms"), (1e17, "us"))
    return next((unit for below, unit in units if value < below), "ns")


def _calendar(text: str, style: str, zone: tzinfo | None, fold: int) -> float:
    try:
        moment = (
            datetime.fromisoformat(text) if style in {AUTO, ISO} else datetime.strptime(text, style)  # noqa: DTZ007
        )
    except ValueError as error:
        expected = "an ISO 8601 time, or another format said" if style in {AUTO, ISO} else style
        raise ValueError(f"time {text[:40]!r}: expected {expected}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone or UTC, fold=fold)
    return moment.timestamp() * 1000


@dataclass(frozen=True, slots=True)
class TimeRule:
    """Where the time of a reading is, and what is done where it cannot be read.

    The default: in `t`, or it is now.
    """

    path: str = ""
    """Name of the field, or names joined by dots; `auto`: one of NAMES that holds what can only be
    a time; empty: `t` alone."""
    style: str = AUTO
    """See `to_ms`."""
    zone: tzinfo | None = None
    """The zone of times that do not name one; None: UTC."""
    converts_t: bool = True
    """Is a `t` that can only be seconds, micro- or nanoseconds converted? Otherwise it is
    refused."""
    refuses: bool = False
    """Is a reading refused if the field is missing or not a time? Otherwise its time is now."""


Say: TypeAlias = Callable[[str], None]
"""Receives what was found, or what was odd."""


def _passed_over(_: str) -> None:
    """For who does not want to know."""


def with_time(
    body: Mapping[str, Any], rule: TimeRule, say: Say, found: Say = _passed_over
) -> Mapping[str, Any]:
    """An object with its time as `t` in ms, without the field that it came from.

    `found`: is told the field and the form of a time that had to be found or converted, as in
    `ts (s)`. Raises Rejected(time).
    """
    t = body.get("t")
    unit, ms = looks_like(t), of_plain(t, rule.zone)
    if ms is not None and isinstance(t, str):
        say(f"t as text ({unit})")
        found(way("t", unit))
        return {**body, "t": ms}
    if unit in UNITS_MS and unit != "ms":
        if not rule.converts_t:
            raise Rejected(
                RejectReason.TIME, f"t: {t} can only be {unit}: expected milliseconds since 1970"
            )
        say(f"t in {unit}")
        found(way("t", unit))
        return {**body, "t": ms}
    if t is not None and ms is None:
        say("no time in t")
    if not rule.path or (rule.path == AUTO and ms is not None):
        return body
    if rule.path == AUTO:
        return _detected(body, rule, say, found)
    value, rest = _taken_out(body, rule.path)
    try:
        if value is None:
            raise ValueError("the time is missing")
        timed = _timed(rest, of_device(value, rule.style, rule.zone))
    except ValueError as error:
        if rule.refuses:
            raise Rejected(RejectReason.TIME, f"{rule.path}: {error}") from error
        say(f"no time in {rule.path}")
        return body
    found(way(rule.path, looks_like(value) if rule.style == AUTO else rule.style))
    return timed


def way(name: str, form: str) -> str:
    """How a time was found: its field, and its form or unit."""
    return f"{name} ({form or 'by its size'})"


def _detected(body: Mapping[str, Any], rule: TimeRule, say: Say, found: Say) -> Mapping[str, Any]:
    by_lower = {name.lower(): name for name in reversed(list(body))}
    for name in filter(None, map(by_lower.get, NAMES[1:])):
        ms = of_plain(body[name], rule.zone)
        if ms is not None and (looks := looks_like(body[name])):
            say(f"time from {name} ({looks})")
            found(way(name, looks))
            return _timed({other: body[other] for other in body if other != name}, ms)
    if rule.refuses:
        raise Rejected(
            RejectReason.TIME, f"no field that holds a time: expected one of {', '.join(NAMES)}"
        )
    say("no time found")
    return body


def _timed(body: dict[str, Any], ms: int) -> dict[str, Any]:
    """The object with this time; what was called `t` is a field."""
    put_over(body, {"t": ms})
    return body


def _taken_out(body: Mapping[str, Any], path: str) -> tuple[Any, dict[str, Any]]:
    """The value at a path, and the object without it.

    A field whose own name has dots goes before.
    """
    rest = dict(body)
    if path in rest:
        return rest.pop(path), rest
    first, _, behind = path.partition(".")
    inner = rest.get(first)
    if not behind or not isinstance(inner, Mapping):
        return None, rest
    value, rest_of_inner = _taken_out(inner, behind)
    if rest_of_inner:
        rest[first] = rest_of_inner
    else:
        del rest[first]
    return value, rest


def zone_of(name: str) -> tzinfo:
    """A zone by its name, such as Europe/Berlin. Raises ValueError."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo  # a small device pays for it when it needs one

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(f"{name!r}: expected a time zone such as Europe/Berlin") from error
