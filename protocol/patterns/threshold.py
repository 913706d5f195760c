"""A threshold with hysteresis: when a condition has held long enough, and when it is over. Pure.

The rule of agents (`rule` in their chains) and of queries (`threshold_window`): it is *active* when
the condition has held for a given event time and number of readings, and until another condition,
the clearing one, is true. Between the two nothing happens, which keeps a value at the threshold
from ringing. Where the time goes backwards while the condition holds and nothing is active yet, the
wait starts again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Held:
    """What is known between two readings."""

    active: bool
    since: int | None
    """Event time, ms, at which the condition began to hold; None while it does not."""
    count: int
    """Readings for which it has held."""


IDLE: Final = Held(active=False, since=None, count=0)


def step(
    held: Held, t: int, *, is_met: bool, for_ms: float = 0, for_count: int = 1
) -> tuple[Held, bool]:
    """The state after one more reading; and did the time go backwards?

    `is_met`: the clearing condition while it is active, else the condition.
    """
    if held.active:
        return (IDLE if is_met else held), False
    if not is_met:
        return IDLE, False
    since, count = held.since, held.count + 1
    is_backwards = since is not None and t < since
    if since is None or is_backwards:
        since, count = t, 1
    return Held(t - since >= for_ms and count >= for_count, since, count), is_backwards
