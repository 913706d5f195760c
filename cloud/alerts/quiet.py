"""Quiet hours of a rule: when nothing about it is sent. Pure; times are ms since 1970."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from edgewake.protocol.ops.alert import Quiet, RuleText, Severity

_BY_SEVERITY = tuple(Severity)


def zone_of(name: str) -> ZoneInfo | None:
    """The zone of this name; None where this machine knows none."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # a folder of zones is an OSError
        return None


def until(rule: RuleText, now: int) -> int:
    """When the quiet hours end that a rule is in; 0 where it is in none.

    A zone that this machine does not know, or a time that no calendar has, keeps nothing back.
    """
    quiet = rule.quiet
    if quiet is None or _passes(quiet, rule.severity):
        return 0
    zone = zone_of(quiet.zone)
    try:
        local = datetime.fromtimestamp(now / 1000, zone)
    except (OverflowError, ValueError, OSError):
        return 0
    if zone is None or not _is_within(quiet, f"{local:%H:%M}"):
        return 0
    is_next_day = f"{local:%H:%M}" >= quiet.ends
    day = local.date() + timedelta(days=is_next_day)
    end = datetime.combine(day, time.fromisoformat(quiet.ends), zone)
    if end.timestamp() * 1000 <= now:  # the clocks went back, and this hour comes twice
        end = end.replace(fold=1)
    return round(end.timestamp() * 1000)


def _passes(quiet: Quiet, severity: Severity) -> bool:
    if quiet.passes is None:
        return False
    return _BY_SEVERITY.index(severity) >= _BY_SEVERITY.index(quiet.passes)


def _is_within(quiet: Quiet, clock: str) -> bool:
    """Is a wall clock's time, HH:MM, within the span, which may go over midnight?"""
    if quiet.begins < quiet.ends:
        return quiet.begins <= clock < quiet.ends
    return clock >= quiet.begins or clock < quiet.ends
