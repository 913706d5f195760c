"""The wait before the next attempt: exponential, with jitter.

So clients that lost the same server do not return all at once.
"""

from __future__ import annotations

import random


class Backoff:
    """Waits a quarter of `first_s` to all of it, then twice that, … up to `max_s`.

    `reset` it after a success.
    """

    def __init__(self, rng: random.Random, *, first_s: float = 0.2, max_s: float = 5.0) -> None:
        self._rng = rng
        self._first_s = first_s
        self._max_s = max_s
        self._bound_s = first_s

    def next_s(self) -> float:
        """Seconds to wait now."""
        wait_s = self._rng.uniform(self._bound_s / 4, self._bound_s)
        self._bound_s = min(self._max_s, self._bound_s * 2)
        return wait_s

    def reset(self) -> None:
        """Start again with the first wait, after a success."""
        self._bound_s = self._first_s
