"""What a server means by Retry-After (RFC 9110, 10.2.3). Pure."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime


def retry_after_s(text: str, now_ms: int, *, max_s: float) -> float:
    """Parse a Retry-After header as seconds from `now_ms`, `max_s` at most; 0 without one.

    It may hold seconds or a date.
    """
    try:
        seconds = float(text) if text.isascii() and text.isdigit() else _at_s(text) - now_ms / 1000
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max_s, max(0.0, seconds))


def _at_s(text: str) -> float:
    """A date, always of UTC: some of its forms do not say so (RFC 9110, 5.6.7).

    Raises ValueError, TypeError, OverflowError.
    """
    at = parsedate_to_datetime(text)
    return (at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp()
