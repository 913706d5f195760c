"""Times that people give to commands: a moment, milliseconds, or so long ago."""

from __future__ import annotations

from typing import Final

import click

UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
TIME: Final = (
    "a time such as 2026-11-21T08:00:00Z, milliseconds since 1970, or so long ago: 30s, 10m, 6h, 7d"
)


def parse_time(text: str, now_ms: int) -> int:
    """Parse a time as milliseconds since 1970 UTC. Raises ValueError. Pure.

    It is an ISO 8601 time with offset or Z, a number of ms, or a span before `now_ms`.
    """
    from datetime import datetime

    if text.isascii() and text.isdigit():
        return int(text)
    if text and text[-1] in UNITS_MS and text[:-1].isascii() and text[:-1].isdigit():
        return max(0, now_ms - int(text[:-1]) * UNITS_MS[text[-1]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r}: expected {TIME}") from error
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} does not say of which zone: expected {TIME}")
    return int(moment.timestamp() * 1000)


def time_ms(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """Parse a time, as the callback of an option."""
    from edgewake.protocol.clock import SystemClock

    if value is None:
        return None
    try:
        return parse_time(value, SystemClock().now_ms())
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
