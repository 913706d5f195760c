"""When to wake, when to wake again, and when to retry a failing endpoint.

The decisions depend on counts and times alone. All times are wall clock, ms since 1970 UTC, because
they outlive the process.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.quiet_hours import quiet_until
from edgewake.protocol.leases.lease import Urgency, WakePolicy

COUNT_MAX: Final = 10_000
"""Events counted for one wake-up; beyond it the wake-up says `capped`."""

RETRY_DELAYS_S: Final = (5, 30, 300, 1800, 7200, 18_000, 36_000, 50_400)
"""Our own waits after the 1st, 2nd, … failed try in a row; the last is repeated. Standard Webhooks
asks for exponential ones."""
GIVE_UP_AFTER_S: Final = 3 * 86_400
"""An endpoint that has failed for so long is given up. Time decides and not a count, so that no
Retry-After, however short, and no burst of quick failures uses up the tries of an endpoint that is
being repaired."""
GIVE_UP_TRIES_MIN: Final = 5
"""…and that was tried at least so often: a proxy that was itself away for days must not give up
after one try."""
RETRY_AFTER_MAX_S: Final = 86_400
"""The longest Retry-After that is obeyed; a longer one counts as this."""
JITTER: Final = 0.1
"""Waits are lengthened by up to this share, so that endpoints which failed together are not tried
together."""

REWAKE_DELAYS_S: Final[Mapping[Urgency, tuple[int, ...]]] = {
    Urgency.LOW: (3600, 86_400),
    Urgency.NORMAL: (60, 600, 3600, 21_600, 86_400),
    Urgency.HIGH: (60, 600, 3600, 21_600, 86_400),
}
"""Delays after the 1st, 2nd, … wake-up until a client that did not resume is woken again; the last
is repeated until the lease ends."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """What came after the position up to which the client was notified."""

    count: int = 0
    oldest_at: int | None = None
    """When the first of them entered the cloud."""
    gap: bool = False
    """Part of the range is lost, of which the client is notified like of an event."""

    @property
    def capped(self) -> bool:
        """Counting has stopped."""
        return self.count >= COUNT_MAX


def wake_due_at(
    policy: WakePolicy, unseen: Unseen, *, last_wake_at: int | None, now: int
) -> int | None:
    """When to wake for what is unseen; None: not before more comes."""
    ready = _ready_at(policy, unseen, now)
    if ready is None:
        return None
    return _allowed_at(policy, ready, last_wake_at=last_wake_at, now=now)


def rewake_at(
    policy: WakePolicy, *, unanswered: int, last_wake_at: int, now: int, rng: random.Random
) -> int:
    """When to wake a client again that did not resume after `unanswered` wake-ups (1 or more)."""
    delays = REWAKE_DELAYS_S[policy.urgency]
    delay_s = delays[min(unanswered, len(delays)) - 1] * (1 + JITTER * rng.random())
    since = min(last_wake_at, now)  # a wall clock that was set back must not silence a lease
    return _allowed_at(
        policy, max(now, since + round(delay_s * 1000)), last_wake_at=last_wake_at, now=now
    )


def retry_delay_s(
    failures: int, *, failing_since: int, now: int, retry_after_s: float | None, rng: random.Random
) -> float | None:
    """Seconds until the next try after `failures` failed ones in a row; None: give up.

    The first failed at `failing_since`. It is the longer of our own wait and the endpoint's
    Retry-After, which is bounded and never undercuts our own.
    """
    if failures >= GIVE_UP_TRIES_MIN and now - failing_since >= GIVE_UP_AFTER_S * 1000:
        return None
    own_s = RETRY_DELAYS_S[min(failures, len(RETRY_DELAYS_S)) - 1]
    asked_s = min(retry_after_s or 0.0, RETRY_AFTER_MAX_S)
    return max(own_s, asked_s) * (1 + JITTER * rng.random())


def _ready_at(policy: WakePolicy, unseen: Unseen, now: int) -> int | None:
    if unseen.gap or unseen.count >= min(policy.min_events, COUNT_MAX):
        return now
    if unseen.count and policy.max_wait_s > 0:
        oldest = now if unseen.oldest_at is None else unseen.oldest_at
        return max(now, oldest + round(policy.max_wait_s * 1000))
    return None


def _allowed_at(policy: WakePolicy, ready: int, *, last_wake_at: int | None, now: int) -> int:
    """`ready`, put off by the least interval and by quiet hours."""
    at = ready
    # A wall clock that was set back must not silence a lease.
    if last_wake_at is not None and last_wake_at <= now:
        at = max(at, last_wake_at + round(policy.min_interval_s * 1000))
    if policy.quiet is not None and policy.urgency is not Urgency.HIGH:
        at = quiet_until(policy.quiet, at)
    return at
