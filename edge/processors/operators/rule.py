"""Threshold rule: raises an alert when a condition has held long enough, and clears it.

It makes two readings per alert: `active` true when `when` has held for `for_s` of event time and
`for_count` readings, `active` false when `clear` (by default: not `when`) is true. Each carries
`rule`, `since_ms` (when the condition began to hold) and the fields of the reading that decided.
Between `when` and `clear` nothing happens: that is the hysteresis that keeps a value at the
threshold from ringing.

A condition that is neither true nor false changes nothing, with a remark. Where the time goes
backwards while a condition holds, the wait starts again.
"""

from __future__ import annotations

from dataclasses import asdict

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import RuleConfig
from edgewake.edge.processors.expression import compiled
from edgewake.edge.processors.processor import Remark, State, Stepped
from edgewake.protocol.patterns.threshold import IDLE, Held, step


class Rule:
    """The step.

    Its state: {"active": …, "since": when the condition began to hold or null, "count": readings
    for which it has held}.
    """

    def __init__(self, config: RuleConfig) -> None:
        self._name = config.name
        self._when = compiled(config.when)
        self._clear = None if config.clear is None else compiled(config.clear)
        self._for_ms = config.for_s * 1000
        self._for_count = config.for_count
        self.initial: State = asdict(IDLE)

    def step(self, state: State, reading: Reading) -> Stepped:
        is_decided = self._clear if state["active"] and self._clear is not None else self._when
        found = is_decided(reading)
        if not isinstance(found, bool):
            return Stepped(state, (), (Remark.UNKNOWN,))
        before = Held(**state)
        held, is_backwards = step(
            before,
            reading[0],
            is_met=found is not (before.active and self._clear is None),
            for_ms=self._for_ms,
            for_count=self._for_count,
        )
        alerts: tuple[Reading, ...] = ()
        if held.active != before.active:
            alerts = (
                self._alert(
                    reading, active=held.active, since=held.since if held.active else before.since
                ),
            )
        return Stepped(asdict(held), alerts, (Remark.BACKWARDS,) if is_backwards else ())

    def _alert(self, reading: Reading, *, active: bool, since: int | None) -> Reading:
        t, fields = reading
        return t, {**fields, "rule": self._name, "active": active, "since_ms": since}
