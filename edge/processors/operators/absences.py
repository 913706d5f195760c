"""The states of one absence rule: of the device, or of each thing behind it for itself. Pure.

A thing is watched from its first reading on. It stays so: one that now hangs elsewhere is silent
here, and the alert says that once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import orjson

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import AbsenceConfig
from edgewake.edge.processors.operators import absence
from edgewake.edge.processors.operators.absence import Absence

OWN = ""
"""The device itself, among its things."""


class Absences:
    """By thing; one task's."""

    def __init__(self, config: AbsenceConfig, states: dict[str, Absence]) -> None:
        self._config = config
        self._states = states

    @classmethod
    def resumed(
        cls,
        config: AbsenceConfig,
        kept: bytes | None,
        things: Iterable[str],
        *,
        now_s: float,
        now_ms: int,
    ) -> Self:
        """Start with things that were heard before; an alert that is raised stays raised."""
        raised = _raised(kept)
        return cls(
            config,
            {
                thing: absence.resumed(raised.get(thing), now_s=now_s, now_ms=now_ms)
                for thing in things
            },
        )

    def encode(self) -> bytes:
        """What outlasts the process: those whose alert is raised."""
        return orjson.dumps(
            {
                thing: orjson.Fragment(state.encode())
                for thing, state in self._states.items()
                if state.active
            }
        )

    @property
    def active(self) -> int:
        """How many alerts are raised."""
        return sum(state.active for state in self._states.values())

    def left_s(self, now_s: float) -> float | None:
        """Seconds until the next one has been silent for too long; None: all of them are told."""
        return min(
            (
                self._config.after_s - state.silent_for_s(now_s)
                for state in self._states.values()
                if not state.active
            ),
            default=None,
        )

    def heard(self, things: Iterable[str], *, now_s: float, now_ms: int) -> dict[str, Reading]:
        """Readings of these came: the alerts that are over."""
        told: dict[str, Reading] = {}
        for thing in things:
            before = self._states.get(thing) or Absence(now_s, now_ms)
            self._states[thing], alerts = absence.heard(
                self._config, before, now_s=now_s, now_ms=now_ms
            )
            for alert in alerts:
                told[thing] = alert
        return told

    def silent(self, *, now_s: float, now_ms: int) -> dict[str, Reading]:
        """Raise the alerts, each once, of those of which nothing has come for too long."""
        told: dict[str, Reading] = {}
        for thing, before in self._states.items():
            self._states[thing], alerts = absence.silent(
                self._config, before, now_s=now_s, now_ms=now_ms
            )
            for alert in alerts:
                told[thing] = alert
        return told


def _raised(kept: bytes | None) -> dict[str, bytes]:
    try:
        found: Any = orjson.loads(kept or b"null")
    except orjson.JSONDecodeError:
        return {}
    things = found.items() if isinstance(found, dict) else ()
    return {str(thing): orjson.dumps(one) for thing, one in things}
