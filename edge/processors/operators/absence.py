"""Absence rule: raises an alert when a stream has been silent for too long. Pure.

It clears the alert when a reading comes. A chain cannot do this: its windows close by its input,
and here there is none. So the alert depends on when the agent listened: the time is the monotonic
clock's, counted from the last reading that was heard or from the agent's start, and what was raised
before a restart stays raised until a reading comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import AbsenceConfig


@dataclass(frozen=True, slots=True)
class Absence:
    """The state of an absence rule."""

    since_s: float
    """Monotonic time from which the silence counts."""
    since_ms: int
    """Wall-clock time from which the silence counts, for the alert, ms."""
    active: bool = False

    def silent_for_s(self, now_s: float) -> float:
        """Seconds of silence."""
        return now_s - self.since_s

    def encode(self) -> bytes:
        """What outlasts the process: a monotonic clock means nothing to the next one."""
        return orjson.dumps({"active": self.active, "since_ms": self.since_ms})


def resumed(kept: bytes | None, *, now_s: float, now_ms: int) -> Absence:
    """Its state at the agent's start; a state that cannot be read counts as empty."""
    try:
        found: Any = orjson.loads(kept or b"null")
        if found["active"] is True:
            return Absence(now_s, int(found["since_ms"]), active=True)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        pass
    return Absence(now_s, now_ms)


def heard(
    config: AbsenceConfig, state: Absence, *, now_s: float, now_ms: int
) -> tuple[Absence, list[Reading]]:
    """Readings came: the state after them, and the alert that is over."""
    return Absence(now_s, now_ms), [
        _alert(config, state, now_ms, active=False)
    ] if state.active else []


def silent(
    config: AbsenceConfig, state: Absence, *, now_s: float, now_ms: int
) -> tuple[Absence, list[Reading]]:
    """Raise an alert, once, when nothing has come for too long."""
    if state.active or state.silent_for_s(now_s) < config.after_s:
        return state, []
    return Absence(state.since_s, state.since_ms, active=True), [
        _alert(config, state, now_ms, active=True)
    ]


def _alert(config: AbsenceConfig, state: Absence, now_ms: int, *, active: bool) -> Reading:
    return now_ms, {
        "rule": config.name,
        "active": active,
        "since_ms": state.since_ms,
        "of_stream": config.stream,
    }
