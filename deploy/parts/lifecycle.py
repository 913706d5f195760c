"""When a part is started again. Decides only: no process, clock or randomness of its own.

The table is the whole behaviour; a pair that is not in it is a bug and raises. A part that was
ready once is never given up: QUICK_MAX starts follow one another quickly, then one every SLOW_S to
twice that, for ever. A part that was never ready fails the start of the whole system, because the
person who started it is there to read why.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

QUICK_MAX: Final = 5
"""Ends in a row that are each followed by a quick start."""
QUICK_FIRST_S: Final = 0.25
"""Wait before the first quick start; each next one is twice as long: 0.25, 0.5, 1, 2, 4 s."""
SLOW_S: Final = 30.0
"""Shortest wait after QUICK_MAX ends in a row; jitter adds up to as much again, so that parts which
share a cause do not share a moment."""
STEADY_S: Final = 60.0
"""A part that lived so long ended for another reason than the time before: its ends in a row count
from one."""


class State(StrEnum):
    """What a part is doing, as it is published."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"


class Event(StrEnum):
    """What happened to a part."""

    START = "start"
    READY = "ready"
    ENDED = "ended"
    GIVE_UP = "give_up"
    STOP = "stop"


TABLE: Final[Mapping[tuple[State, Event], State]] = {
    (State.STOPPED, Event.START): State.STARTING,
    (State.STOPPED, Event.STOP): State.STOPPED,
    (State.STARTING, Event.READY): State.READY,
    (State.STARTING, Event.ENDED): State.RESTARTING,
    (State.STARTING, Event.STOP): State.STOPPED,
    (State.READY, Event.ENDED): State.RESTARTING,
    (State.READY, Event.STOP): State.STOPPED,
    (State.RESTARTING, Event.START): State.STARTING,
    (State.RESTARTING, Event.GIVE_UP): State.FAILED,
    (State.RESTARTING, Event.STOP): State.STOPPED,
    (State.FAILED, Event.STOP): State.FAILED,
}


def after(state: State, event: Event) -> State:
    """The state that follows; raises ValueError for what cannot happen."""
    try:
        return TABLE[state, event]
    except KeyError:
        raise ValueError(f"a part that is {state} cannot {event}") from None


def ends_in_a_row(before: int, lived_s: float) -> int:
    """The number of ends in a row without a steady life between, with this one."""
    return 1 if lived_s >= STEADY_S else before + 1


def restart_delay_s(ends: int, jitter: float) -> float:
    """Seconds until the next start after `ends` in a row; `jitter`: 0 to 1."""
    if ends > QUICK_MAX:
        return SLOW_S * (1 + jitter)
    return QUICK_FIRST_S * 2.0 ** (ends - 1) * (0.5 + jitter / 2)


def is_given_up(ends: int, *, was_ready: bool, dislikes_its_configuration: bool) -> bool:
    """Is another start useless? Only before the part was ready for the first time."""
    return not was_ready and (dislikes_its_configuration or ends >= QUICK_MAX)


def grace_s(wanted_s: float, *, left_s: float, groups_left: int, reserve_s: float = 0.4) -> float:
    """Seconds that a group may take to stop, so that each later one still gets `reserve_s`."""
    return max(0.0, min(wanted_s, left_s - reserve_s * groups_left))
