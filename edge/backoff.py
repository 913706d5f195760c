"""Back-off: how long to wait before trying again. Pure: randomness is an argument.

The n-th wait is drawn evenly from [d/2, d] with d = minimum · 2^(n-1), at most the maximum: with
0.2 s and 30 s that is 0.1-0.2,
0.2-0.4, … 15-30 s, 23-47 s in all for eight tries. Half of it is random so that a thousand devices
that lost one broker do not come back in one second; the other half makes sure that a refused device
waits. A connection that lasted `SETTLED_S` starts from the minimum again; one that was accepted and
kicked at once does not.
"""

from __future__ import annotations

import random
from typing import Final

SETTLED_S: Final = 10.0
"""Seconds that a connection must last before the failures before it are forgotten."""


class Backoff:
    """Counts failures and says how long to wait."""

    def __init__(self, minimum_s: float, maximum_s: float, rng: random.Random) -> None:
        self._minimum_s = minimum_s
        self._maximum_s = maximum_s
        self._rng = rng
        self._failures = 0

    def next_s(self) -> float:
        """Seconds to wait after one more failure."""
        self._failures = min(self._failures + 1, 64)
        bound = min(self._maximum_s, self._minimum_s * 2.0 ** (self._failures - 1))
        return bound / 2 + self._rng.random() * bound / 2

    def connection_lasted(self, seconds: float) -> None:
        """A connection lasted so long."""
        if seconds >= SETTLED_S:
            self._failures = 0
