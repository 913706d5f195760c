"""What becomes of a delivery: decisions only. Times are wall clock, ms since 1970 UTC.

    cursor ──begun──▶ batch in hand ──taken──▶ cursor behind it
                        │  ▲   │
                 failed └──┘   ├──refused, several events──▶ the next batch is half as large
              (again, for days)└──refused, one event, often──▶ a dead letter; the next event

An endpoint that answers 400, 413, 415 or 422 has looked at a batch and does not want it: it is
halved until the one event is found that is at fault, and that one becomes a letter, so that it
holds up no other. Whatever else goes wrong (no connection, 401, 5xx, a redirect) is a fault of the
endpoint, and everything waits in order until it is mended, or given up after GIVE_UP_S.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Final

from edgewake.cloud.calls.webhook import Failed
from edgewake.protocol.leases.delivery_record import Delivery, DeliveryState, Letter, Pending

RETRY_DELAYS_S: Final = (1, 5, 30, 120, 600, 1800, 3600)
"""Waits after the 1st, 2nd, … failed attempt in a row; the last is repeated."""
GIVE_UP_S: Final = 5 * 86_400
"""An endpoint that failed for so long is given up: two days before streams forget, by default, what
it did not take."""
RETRY_AFTER_S_MAX: Final = 86_400.0
"""The longest Retry-After that is obeyed."""
JITTER: Final = 0.1
"""Waits are lengthened by up to this share: endpoints that failed together are not tried
together."""
REFUSALS: Final = frozenset({400, 413, 415, 422})
REFUSALS_MAX: Final = 3
"""Attempts after which one event that is refused becomes a letter."""
LETTERS_MAX: Final = 100
"""Letters of one delivery. With more it waits until some are replayed or removed: an endpoint that
refuses everything is broken, and its events are not at fault."""
LETTERS_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of their events, which are kept in memory, 200 deliveries of them at worst; past it the
delivery waits, too."""
ERROR_CHARS_MAX: Final = 300
"""Characters that are kept of what went wrong."""


def begun(delivery: Delivery, to: str, *, now: int) -> Delivery:
    """A batch is in hand, from the delivery's cursor to `to`; to be stored before it is sent."""
    number = delivery.batches + 1
    return delivery.but(pending=Pending(number, to, now), batches=number)


def moved(delivery: Delivery, to: str) -> Delivery:
    """There was nothing to deliver up to `to`."""
    return delivery.but(cursor=to)


def taken(delivery: Delivery, events: int, *, now: int) -> Delivery:
    """The endpoint has the batch in hand."""
    assert delivery.pending is not None
    grown = None if delivery.events_at_once is None else delivery.events_at_once * 2
    return delivery.but(
        cursor=delivery.pending.to,
        pending=None,
        events=delivery.events + events,
        delivered_at=now,
        events_at_once=None if grown is None or grown >= delivery.events_max else grown,
        failures=0,
        failing_since=None,
        next_at=None,
        error="",
    )


def ended(delivery: Delivery, why: str, *, now: int) -> Delivery:
    """It is tried no more."""
    return delivery.but(state=DeliveryState.ENDED, why=why, next_at=None, changed_at=now)


def enabled(delivery: Delivery, *, now: int) -> Delivery:
    """It is tried again, at once, from where it stands."""
    return delivery.but(
        state=DeliveryState.ACTIVE,
        why=None,
        failures=0,
        failing_since=None,
        next_at=None,
        changed_at=now,
    )


def is_refusal(outcome: Failed) -> bool:
    """Does the endpoint not want what it was sent?"""
    return outcome.status in REFUSALS


def halved(delivery: Delivery, events: int, why: str) -> Delivery:
    """A batch of several events was refused: a smaller one, with a number of its own, is next."""
    return delivery.but(
        pending=None, events_at_once=max(1, events // 2), error=why[:ERROR_CHARS_MAX]
    )


def is_letter(delivery: Delivery, outcome: Failed, events: int) -> bool:
    """Is the one event of the batch in hand to be set aside, after this refusal?"""
    return is_refusal(outcome) and events == 1 and delivery.failures + 1 >= REFUSALS_MAX


def has_room(letters: Collection[Letter], event: str) -> bool:
    """May an event be a letter beside these? The first one may, however large."""
    if not letters:
        return True
    size = sum(len(letter.event.encode()) for letter in letters) + len(event.encode())
    return len(letters) < LETTERS_MAX and size <= LETTERS_BYTES_MAX


def set_aside(delivery: Delivery, event: str, why: str, *, now: int) -> tuple[Delivery, Letter]:
    """The one event of the batch in hand is a letter, and the next one's turn."""
    pending = delivery.pending
    assert pending is not None
    letter = Letter(
        delivery.id, pending.number, event, pending.to, why[:ERROR_CHARS_MAX], made_at=now
    )
    after = delivery.but(
        cursor=pending.to,
        pending=None,
        failures=0,
        failing_since=None,
        next_at=None,
        error=why[:ERROR_CHARS_MAX],
    )
    return after, letter


def failed(delivery: Delivery, outcome: Failed, *, now: int, rng: random.Random) -> Delivery:
    """An attempt failed: again later, or given up."""
    failures = delivery.failures + 1
    since = now if delivery.failing_since is None else min(now, delivery.failing_since)
    error = outcome.why[:ERROR_CHARS_MAX]
    changed = delivery.but(failures=failures, failing_since=since, error=error)
    if now - since >= GIVE_UP_S * 1000:
        days = (now - since) / 86_400_000
        why = f"given up after {failures} attempts in {days:.1f} days; the last: {error}"
        return ended(changed, why, now=now)
    own_s = RETRY_DELAYS_S[min(failures, len(RETRY_DELAYS_S)) - 1]
    asked_s = min(outcome.retry_after_s or 0.0, RETRY_AFTER_S_MAX)
    wait_s = max(own_s, asked_s) * (1 + JITTER * rng.random())
    return changed.but(next_at=now + round(wait_s * 1000))
