"""When a part is started again, and when it is given up. Decides only: no process, clock or randomness of its own.

The table is the whole behaviour; a pair that is not in it is a bug and raises. A part that ends for the fifth time within a minute
is *failed*: it is said, the others go on, and it stays down until the next `edgewake up`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

FAILURES_MAX: Final = 5
"""Ends within WINDOW_S after which a part is given up: what dies that often needs a person, not another start."""
WINDOW_S: Final = 60.0
BACKOFF_FIRST_S: Final = 0.25
BACKOFF_MAX_S: Final = 8.0
"""Longest wait before a restart; with FAILURES_MAX it bounds the rate of starts."""


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


def restart_delay_s(ends_s: Sequence[float], now_s: float, jitter: float) -> float | None:
    """Seconds until the next start, None to give up. `ends_s`: when the part ended before, newest last; `jitter`: 0 to 1."""
    recent = sum(1 for end in ends_s if now_s - end < WINDOW_S)
    if recent >= FAILURES_MAX:
        return None
    full = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** max(0, recent - 1))
    return full * (0.5 + jitter / 2)


def grace_s(wanted_s: float, *, left_s: float, groups_left: int, reserve_s: float = 0.4) -> float:
    """How long a group may take to stop, so that each later one still gets `reserve_s` of what is left of the whole time."""
    return max(0.0, min(wanted_s, left_s - reserve_s * groups_left))
