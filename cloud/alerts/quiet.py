"""Quiet hours of a rule: when nothing about it is sent. Pure; times are ms since 1970."""

from __future__ import annotations

from edgewake.cloud.quiet_hours import is_quiet, quiet_until
from edgewake.protocol.leases.lease import QuietHours
from edgewake.protocol.ops.alert import Quiet, RuleText, Severity

_BY_SEVERITY = tuple(Severity)


def until(rule: RuleText, now: int) -> int:
    """When the quiet hours end that a rule is in; 0 where it is in none.

    A zone that this machine does not know, or a time that no calendar has, keeps nothing back.
    """
    quiet = rule.quiet
    if quiet is None or _passes(quiet, rule.severity):
        return 0
    try:
        hours = QuietHours(start=quiet.begins, end=quiet.ends, timezone=quiet.zone)
        return quiet_until(hours, now) if is_quiet(hours, now) else 0
    except (OverflowError, ValueError, OSError):
        return 0


def _passes(quiet: Quiet, severity: Severity) -> bool:
    if quiet.passes is None:
        return False
    return _BY_SEVERITY.index(severity) >= _BY_SEVERITY.index(quiet.passes)
