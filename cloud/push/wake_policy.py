"""When to wake, and when to try again: decisions from counts and times alone.

All times are wall clock, ms since 1970 UTC, because they outlive the process.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from edgewake.protocol.lease import WakePolicy

COUNT_MAX: Final = 10_000
"""Events counted for one wake-up; beyond it the wake-up says `capped` and covers all there is."""

RETRY_DELAYS_S: Final = (5, 30, 300, 1800, 7200, 18_000, 36_000, 50_400)
"""Waits after the 1st, 2nd, … failed try; 9 tries over 31 hours, as Standard Webhooks asks ("several days, exponentially")."""
JITTER: Final = 0.1
"""Waits are lengthened by up to this share, so that endpoints which failed together are not tried together."""
RETRY_AFTER_MAX_S: Final = 86_400
"""The longest Retry-After that is obeyed."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What came after the place up to which the client was told."""

    count: int = 0
    oldest_at: int | None = None
    """When the first of them was seen."""
    gap: bool = False
    """Some of it is lost, which the client is told like an event."""

    @property
    def capped(self) -> bool:
        """Counting has stopped."""
        return self.count >= COUNT_MAX


def wake_due_at(policy: WakePolicy, waiting: Waiting, *, last_wake_at: int | None, now: int) -> int | None:
    """When to wake for what is waiting; None: not before more comes."""
    ready = _ready_at(policy, waiting, now)
    if ready is None:
        return None
    if last_wake_at is None or last_wake_at > now:  # a wall clock that was set back must not silence a lease
        return ready
    return max(ready, last_wake_at + round(policy.min_interval_s * 1000))


def _ready_at(policy: WakePolicy, waiting: Waiting, now: int) -> int | None:
    if waiting.gap or waiting.count >= min(policy.min_events, COUNT_MAX):
        return now
    if waiting.count and policy.max_wait_s > 0:
        oldest = now if waiting.oldest_at is None else waiting.oldest_at
        return max(now, oldest + round(policy.max_wait_s * 1000))
    return None


def retry_delay_s(failures: int, *, retry_after_s: float | None, rng: random.Random) -> float | None:
    """Seconds until the next try after `failures` failed ones in a row; None: give up.

    A Retry-After is kept where it is longer than our own wait, never undercut.
    """
    if failures > len(RETRY_DELAYS_S):
        return None
    wait = float(RETRY_DELAYS_S[failures - 1])
    if retry_after_s is not None:
        wait = min(retry_after_s, RETRY_AFTER_MAX_S)
    return wait * (1 + JITTER * rng.random())
