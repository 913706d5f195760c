"""The wait before the next attempt: exponential, with jitter, or as a server asks. Pure.

Randomness is an argument.

The n-th wait is drawn evenly from [d/2, d] with d = first · 2^(n-1), at most the maximum: with
0.2 s and 30 s that is 0.1-0.2,
0.2-0.4, … 15-30 s, 23-47 s in all for eight tries. Half of it is random so that a thousand clients
that lost one server do not come back in one second; the other half makes sure that whoever is
refused waits. A connection that lasted `SETTLED_S` starts from the first wait again; one that was
accepted and closed at once does not.
"""

from __future__ import annotations

import random
from datetime import UTC
from typing import Final

SETTLED_S: Final = 10.0
"""Seconds that a connection must last before the failures before it are forgotten."""


class Backoff:
    """Counts failures and says how long to wait: `first_s`, then twice that, … up to `max_s`."""

    def __init__(self, rng: random.Random, *, first_s: float = 0.2, max_s: float = 5.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._max_s = max_s
        self._bound_s = first_s

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        bound_s = min(self._bound_s, self._max_s)
        self._bound_s = min(self._max_s, bound_s * 2)
        return bound_s / 2 + self._rng.random() * bound_s / 2

    def reset(self) -> None:
        """Start again with the first wait, after a success."""
        self._bound_s = self._first_s

    def lasted(self, seconds: float) -> None:
        """A connection or a run ended that lasted so long: start again if it was long enough."""
        if seconds >= SETTLED_S:
            self.reset()


def retry_after_s(text: str, now_ms: int, *, max_s: float) -> float:
    """Parse a Retry-After header as seconds from `now_ms`, `max_s` at most; 0 without one.

    It may hold seconds or a date (RFC 9110, 10.2.3).
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
    from email.utils import parsedate_to_datetime  # most agents ask nobody for a date

    at = parsedate_to_datetime(text)
    return (at.replace(tzinfo=UTC) if at.tzinfo is None else at).timestamp()
