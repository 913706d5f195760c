"""What a server means by Retry-After (RFC 9110, 10.2.3). Pure."""

from __future__ import annotations

from email.utils import parsedate_to_datetime


def retry_after_s(text: str, now_ms: int, *, max_s: float) -> float:
    """Seconds from `now_ms`, said as seconds or as a date; `max_s` at most, 0 where it says nothing."""
    try:
        seconds = float(text) if text.isascii() and text.isdigit() else parsedate_to_datetime(text).timestamp() - now_ms / 1000
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max_s, max(0.0, seconds))
