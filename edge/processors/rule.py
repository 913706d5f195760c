"""Threshold rule: raises an alert when a condition has held long enough, and clears it when it is over.

It makes two readings per alert: `active` true when `when` has held for `for_s` of event time and `for_count` readings, `active` false when
`clear` (by default: not `when`) is true. Each carries `rule`, `since_ms` (when the condition began to hold) and the fields of the reading
that decided. Between `when` and `clear` nothing happens: that is the hysteresis that keeps a value at the threshold from ringing.

A condition that is neither true nor false changes nothing, with a remark. Where the time goes backwards while a condition holds, the
waiting begins anew.
"""

from __future__ import annotations

from edgewake.edge.log.codec import Reading
from edgewake.edge.processors.config import RuleConfig
from edgewake.edge.processors.expression import compiled
from edgewake.edge.processors.processor import Remark, State, Stepped


class Rule:
    """The step. Its state: {"active": …, "since": when the condition began to hold or null, "count": readings for which it has held}."""

    def __init__(self, config: RuleConfig) -> None:
        self._name = config.name
        self._when = compiled(config.when)
        self._clear = None if config.clear is None else compiled(config.clear)
        self._for_ms = config.for_s * 1000
        self._for_count = config.for_count
        self.initial: State = {"active": False, "since": None, "count": 0}

    def step(self, state: State, reading: Reading) -> Stepped:
        is_decided = self._clear if state["active"] and self._clear is not None else self._when
        found = is_decided(reading)
        if not isinstance(found, bool):
            return Stepped(state, (), (Remark.UNKNOWN,))
        if state["active"]:
            is_over = found if self._clear is not None else not found
            return Stepped(self.initial, (self._alert(reading, active=False, since=state["since"]),)) if is_over else Stepped(state)
        return self._held(state, reading) if found else Stepped(self.initial)

    def _held(self, state: State, reading: Reading) -> Stepped:
        t, _ = reading
        since, count = state["since"], state["count"] + 1
        remarks: tuple[str, ...] = ()
        if since is None or t < since:
            remarks = () if since is None else (Remark.BACKWARDS,)
            since, count = t, 1
        if t - since < self._for_ms or count < self._for_count:
            return Stepped({"active": False, "since": since, "count": count}, (), remarks)
        return Stepped({"active": True, "since": since, "count": count}, (self._alert(reading, active=True, since=since),), remarks)

    def _alert(self, reading: Reading, *, active: bool, since: int) -> Reading:
        t, fields = reading
        return t, {**fields, "rule": self._name, "active": active, "since_ms": since}
