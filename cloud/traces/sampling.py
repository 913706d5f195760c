"""Decides which messages a bridge traces. No I/O; the clock is passed in.

A device asks for a trace by the flag `sampled` of its `traceparent`; it may ask so often in a
minute. Of messages without one a share is traced. What a device says not to sample is not.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Final

from edgewake.cloud.traces.config import SampledConfig

DEVICES_MAX: Final = 10_000
"""Devices that ask whose share is remembered; the one that asked first of them is forgotten, and
has all its share again."""
MINUTE_S: Final = 60.0


class Sampling:
    """A token bucket for each device that asks, and one share for all others."""

    def __init__(self, config: SampledConfig, rng: random.Random) -> None:
        self._ratio, self._per_min = config.ratio, config.asked_per_min
        self._most = 0.0 if config.asked_per_min == 0 else max(1.0, config.asked_per_min)
        self._rng = rng
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Device → traces that are left, and the monotonic clock when they were."""

    def begins(self) -> bool:
        """Does a message without a `traceparent` begin a trace?"""
        return self._ratio > 0 and self._rng.random() < self._ratio

    def may(self, device: str, now_s: float) -> bool:
        """May this device have one more message traced?"""
        left, at_s = self._left.get(device, (self._most, now_s))
        left = min(self._most, left + (now_s - at_s) * self._per_min / MINUTE_S)
        is_allowed = left >= 1
        self._left[device] = (left - is_allowed, now_s)
        if len(self._left) > DEVICES_MAX:
            self._left.popitem(last=False)
        return is_allowed
