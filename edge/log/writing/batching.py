"""How long a commit waits for more readings. Pure: time is an argument.

A commit costs an fsync, some pages of flash and, while the link is up, a frame for each stream in
it, however many readings it takes. So it waits as long as the most urgent of the lanes that have
something allows, but only if company is to be expected: at less than COMPANY readings within the
wait, waiting would delay each reading and save nothing. The busier the device, the less a reading
costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from edgewake.edge.log.keeping.lanes import Lane

COMPANY: Final = 2.0
"""Readings to be expected within the wait, or it is not worth it."""
LONE_S: Final = 0.002
"""Seconds that a commit waits all the same: sources often bring several readings at once."""
RATE_S: Final = 1.0
"""Seconds over which the rate of readings is averaged."""


class Batching:
    """Learns from the commits how many readings come. `linger_s`: the longest wait of each lane."""

    def __init__(self, linger_s: Mapping[Lane, float]) -> None:
        self.linger_s = linger_s
        self._rate = 0.0
        self._last_s: float | None = None

    def committed(self, readings: int, now_s: float) -> None:
        """A commit took this many readings."""
        if self._last_s is not None:
            seconds = max(1e-3, now_s - self._last_s)
            weight = 1 - math.exp(-seconds / RATE_S)
            self._rate += weight * (readings / seconds - self._rate)
        self._last_s = now_s

    def wait_s(self, waiting_since: Mapping[Lane, float], now_s: float) -> float:
        """Seconds that the commit may still wait; 0 or less: it is due.

        `waiting_since`: when each lane got its first reading.
        """
        return (
            min(
                (since_s + self._longest_s(lane) for lane, since_s in waiting_since.items()),
                default=now_s,
            )
            - now_s
        )

    def _longest_s(self, lane: Lane) -> float:
        linger_s = self.linger_s[lane]
        return linger_s if self._rate * linger_s >= COMPANY else min(linger_s, LONE_S)
