"""Quiet hours: is it quiet at a moment, and until when? Pure; all moments are ms since 1970 UTC.

A quiet time is a daily interval [start, end) of the wall clock of one time zone; it may pass
midnight. Where the clocks are changed, the wall clock decides: an hour that comes twice is quiet
twice, and an end that the clocks jump over is the moment of the jump.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from edgewake.protocol.leases.lease import QuietHours


def is_quiet(hours: QuietHours, at_ms: int) -> bool:
    """Is `at_ms` within the quiet time?"""
    return _contains(hours, _moment(at_ms).astimezone(ZoneInfo(hours.timezone)).time())


def quiet_until(hours: QuietHours, at_ms: int) -> int:
    """The first moment from `at_ms` on that is not quiet: `at_ms` itself where it is not."""
    if not is_quiet(hours, at_ms):
        return at_ms
    zone = ZoneInfo(hours.timezone)
    local = _moment(at_ms).astimezone(zone)
    end = datetime.combine(local.date(), _time(hours.end), zone)
    if end.replace(tzinfo=None) <= local.replace(tzinfo=None):
        end += timedelta(days=1)
    # Two where the clocks are set back over it.
    moments = [round(end.replace(fold=fold).timestamp() * 1000) for fold in (0, 1)]
    ends = max(moments) if _is_skipped(end) else min(moment for moment in moments if moment > at_ms)
    if is_quiet(hours, ends):  # the clocks jumped over the whole loud part of the day
        return quiet_until(hours, ends)
    return _jump(hours, at_ms, ends) if _is_skipped(end) else ends


def _is_skipped(end: datetime) -> bool:
    return end.astimezone(UTC).astimezone(end.tzinfo).replace(tzinfo=None) != end.replace(
        tzinfo=None
    )


def _jump(hours: QuietHours, quiet_ms: int, loud_ms: int) -> int:
    """The moment between a quiet one and one that is not at which it stops being quiet."""
    while loud_ms - quiet_ms > 1:
        middle = (quiet_ms + loud_ms) // 2
        if is_quiet(hours, middle):
            quiet_ms = middle
        else:
            loud_ms = middle
    return loud_ms


def _contains(hours: QuietHours, at: time) -> bool:
    start, end = _time(hours.start), _time(hours.end)
    return start <= at < end if start < end else at >= start or at < end


def _time(text: str) -> time:
    return time.fromisoformat(text)


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms // 1000, UTC).replace(microsecond=at_ms % 1000 * 1000)
