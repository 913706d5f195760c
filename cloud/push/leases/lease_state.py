"""The states of a lease: a table of what may follow what, and the records that follow.

Pure: times and randomness are arguments.

    waiting ──ENOUGH──▶ due ──STORED──▶ calling ──ACCEPTED──▶ notified ──ENOUGH──▶ due …
                         ▲                │ │ FAILED                (again after 1 min, 10 min, …)
                         └────────────────┘ └──GONE──▶ disabled ──ENABLED──▶ waiting

From every living state: READS (the client resumed) ▶ paused, MOVED (PATCH with a cursor) ▶ waiting,
OVER ▶ ended. A pair that is not in the table is a bug and raises.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from edgewake.cloud.push.leases import wake_policy
from edgewake.cloud.push.leases.wake_policy import Unseen
from edgewake.protocol.leases.lease_record import Lease, LeaseState, PendingWake

WAITING, DUE, CALLING = LeaseState.WAITING, LeaseState.DUE, LeaseState.CALLING
NOTIFIED, PAUSED, DISABLED, ENDED = (
    LeaseState.NOTIFIED,
    LeaseState.PAUSED,
    LeaseState.DISABLED,
    LeaseState.ENDED,
)

PAUSE_S: Final = 150
"""Seconds for which the news that a client reads holds. Access servers repeat it every 60 s, so one
that is lost or late does no harm; a client that went away without a PATCH is woken again after
this, from the cursor with which it resumed."""

CLOCKS_APART_MS: Final = 1000
"""By how much the clock of an access server may be ahead. What it says of a client that went to
sleep since is old: news comes by Kafka, and a page is read in less time than that takes. True news
comes again in a minute, and a wake-up meanwhile is a hint too many; a client that was taken for a
reader would not be woken for PAUSE_S."""


def is_old_news(read_at: int, *, slept_at: int, now: int) -> bool:
    """Is it too late to say that a client reads? ms since 1970."""
    return now - read_at > PAUSE_S * 1000 or read_at <= slept_at + CLOCKS_APART_MS


class LeaseEvent(StrEnum):
    """What happens to a lease."""

    ENOUGH = "enough"  # its policy or its schedule wants a wake-up
    STORED = "stored"  # the wake-up is in Kafka, the call begins
    ACCEPTED = "accepted"  # the endpoint took it
    FAILED = "failed"  # to be tried again
    GONE = "gone"  # the endpoint is given up: 410, or it failed for too long
    LOST = "lost"  # the subscription cannot be resumed
    READS = "reads"  # the client reads
    LEFT = "left"  # the client has not been reading for PAUSE_S
    MOVED = "moved"  # the client went to sleep at another cursor
    ENABLED = "enabled"  # call the endpoint again
    TAKEN_OVER = "taken_over"  # another proxy has the lease now
    OVER = "over"  # deleted or expired


E = LeaseEvent
_LIVING: Final = (WAITING, DUE, CALLING, NOTIFIED, PAUSED, DISABLED)
TRANSITIONS: Final[Mapping[tuple[LeaseState, LeaseEvent], LeaseState]] = MappingProxyType(
    {
        (WAITING, E.ENOUGH): DUE,
        (NOTIFIED, E.ENOUGH): DUE,
        (DUE, E.STORED): CALLING,
        (CALLING, E.ACCEPTED): NOTIFIED,
        (CALLING, E.FAILED): DUE,
        (CALLING, E.GONE): DISABLED,
        (PAUSED, E.LEFT): WAITING,
        (DISABLED, E.ENABLED): WAITING,
        **{(state, E.TAKEN_OVER): state for state in _LIVING},
        (
            CALLING,
            E.TAKEN_OVER,
        ): DUE,  # the call may or may not have been made: it is made again, with the same id
        **{(state, E.LOST): DISABLED for state in (WAITING, DUE, NOTIFIED, PAUSED)},
        **{(state, E.READS): PAUSED for state in (WAITING, DUE, CALLING, NOTIFIED, PAUSED)},
        (DISABLED, E.READS): DISABLED,
        **{(state, E.MOVED): WAITING for state in (WAITING, DUE, CALLING, NOTIFIED, PAUSED)},
        (DISABLED, E.MOVED): DISABLED,
        **{(state, E.OVER): ENDED for state in _LIVING},
    }
)


class IllegalTransition(AssertionError):
    """An event in a state where it cannot happen: a bug."""


def after(state: LeaseState, event: LeaseEvent) -> LeaseState:
    """The state that follows; raises IllegalTransition."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(f"{event} in state {state}") from None


def next_action_at(lease: Lease, unseen: Unseen, *, now: int) -> int:
    """When the lease needs attention next: a wake-up, the end of a pause, or its own end."""
    match lease.state:
        case LeaseState.WAITING:
            at = wake_policy.wake_due_at(
                lease.wake, unseen, last_wake_at=lease.last_wake_at, now=now
            )
        case LeaseState.DUE:
            at = lease.due_at or now
        case LeaseState.NOTIFIED | LeaseState.PAUSED:
            at = lease.due_at
        case _:
            at = None
    return lease.expires_at if at is None else min(at, lease.expires_at)


def due(lease: Lease) -> Lease:
    """Its policy or its schedule wants a wake-up now."""
    return lease.but(state=after(lease.state, E.ENOUGH), due_at=None)


def stored(
    lease: Lease, pending: PendingWake, *, counted_to: str | None, count: int, gap: bool
) -> Lease:
    """The wake-up to be stored before its first attempt, and up to where it counts."""
    state = after(lease.state, E.STORED)
    return lease.but(
        state=state, pending=pending, counted_to=counted_to, count=count, gap=gap, due_at=None
    )


def tried_again(lease: Lease) -> Lease:
    """A stored wake-up is about to be tried again."""
    return lease.but(state=after(lease.state, E.STORED), due_at=None)


def accepted(lease: Lease, *, now: int, rng: random.Random) -> Lease:
    """The endpoint took the wake-up: the client is notified.

    It is woken again if it does not resume.
    """
    assert lease.pending is not None
    unanswered = lease.unanswered + 1
    again = wake_policy.rewake_at(
        lease.wake, unanswered=unanswered, last_wake_at=now, now=now, rng=rng
    )
    return lease.but(
        state=after(lease.state, E.ACCEPTED),
        due_at=again,
        pending=None,
        relayed=lease.pending if lease.is_relay else None,
        wakes=lease.pending.number,
        last_wake_at=now,
        unanswered=unanswered,
        failures=0,
        failing_since=None,
    )


def failed(
    lease: Lease, *, why: str, retry_after_s: float | None, now: int, rng: random.Random
) -> Lease:
    """A try failed: again later, or given up."""
    failures = lease.failures + 1
    since = now if lease.failing_since is None else min(now, lease.failing_since)
    delay_s = wake_policy.retry_delay_s(
        failures, failing_since=since, now=now, retry_after_s=retry_after_s, rng=rng
    )
    if delay_s is None:
        days = (now - since) / 86_400_000
        return gone(
            lease.but(failing_since=since),
            why=f"given up after {failures} tries in {days:.1f} days; the last: {why}",
        )
    return lease.but(
        state=after(lease.state, E.FAILED),
        failures=failures,
        failing_since=since,
        due_at=now + round(delay_s * 1000),
    )


def gone(lease: Lease, *, why: str) -> Lease:
    """The endpoint is given up."""
    return lease.but(
        state=after(lease.state, E.GONE), failures=lease.failures + 1, disabled=why, due_at=None
    )


def may_be_lost(state: LeaseState) -> bool:
    """Can it be disabled now? One that is being called is looked at when that is over."""
    return (state, E.LOST) in TRANSITIONS


def lost(lease: Lease, *, why: str) -> Lease:
    """The subscription cannot be resumed."""
    return lease.but(state=after(lease.state, E.LOST), disabled=why, due_at=None)


def reads(lease: Lease, *, cursor: str | None, now: int) -> Lease:
    """The client reads, so it gets no wake-ups.

    It resumed at `cursor` (None: it is known already).
    """
    state = after(lease.state, E.READS)
    if state is DISABLED:
        return lease
    moved = lease if cursor is None else _at_cursor(lease, cursor)
    return moved.but(
        state=state, due_at=now + PAUSE_S * 1000, unanswered=0, pending=None, relayed=None
    )


def left(lease: Lease) -> Lease:
    """The client does not read any more and left no cursor: count from where it resumed."""
    return lease.but(state=after(lease.state, E.LEFT), due_at=None)


def moved(lease: Lease, cursor: str) -> Lease:
    """The client sleeps again, at `cursor`."""
    return _at_cursor(lease, cursor).but(
        state=after(lease.state, E.MOVED), due_at=None, unanswered=0, pending=None, relayed=None
    )


def enabled(lease: Lease) -> Lease:
    """Call the endpoint again; what it has not seen is counted on."""
    state = after(lease.state, E.ENABLED)
    return lease.but(
        state=state,
        disabled=None,
        failures=0,
        failing_since=None,
        pending=None,
        relayed=None,
        due_at=None,
    )


def taken_over(lease: Lease, *, now: int) -> Lease:
    """What another proxy goes on with."""
    state = after(lease.state, E.TAKEN_OVER)
    # The news that a client reads is repeated, but not kept: give it the time to come.
    if state is PAUSED:
        return lease.but(due_at=max(lease.due_at or 0, now + PAUSE_S * 1000))
    return lease.but(state=state)


def _at_cursor(lease: Lease, cursor: str) -> Lease:
    # The number of a wake-up that was stored is used up, even if it is not sent: its id belongs to
    # its body.
    used = lease.wakes if lease.pending is None else lease.pending.number
    return lease.but(cursor=cursor, counted_to=None, count=0, gap=False, wakes=used)
