"""Pattern rule: raises an alert when conditions came true one after the other, within a time: a door that opened, then cold, then a stop.

Each condition needs a reading of its own; readings between them do not matter. It makes one reading for each match, with `rule`, `active`
true, `since_ms` (the first condition's time) and the fields of the reading that completed it; then it begins anew, so no reading is in two
matches of one rule.

For each number of conditions met so far only the latest beginning is kept: whatever could be completed in time from an earlier one, can be
from it. A condition that is neither true nor false is not met, with a remark. Where the time goes backwards, beginnings that are in the
future are given up, with a remark.
"""

from __future__ import annotations

from edgewake.edge.log.codec import Reading
from edgewake.edge.processors.config import PatternConfig
from edgewake.edge.processors.expression import compiled
from edgewake.edge.processors.processor import Remark, State, Stepped


class Pattern:
    """The step. Its state: for 1, 2, … conditions met, when the latest such beginning was, or null."""

    def __init__(self, config: PatternConfig) -> None:
        self._name = config.name
        self._conditions = [compiled(text) for text in config.sequence]
        self._within_ms = config.within_s * 1000
        self.initial: State = [None] * (len(self._conditions) - 1)

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        met = [condition(reading) for condition in self._conditions]
        remarks = [Remark.UNKNOWN] if any(value is None for value in met) else []
        if any(began is not None and began > t for began in state):
            remarks.append(Remark.BACKWARDS)
        began = [one if one is not None and 0 <= t - one <= self._within_ms else None for one in state]
        if met[-1] is True and began[-1] is not None:
            return Stepped(self.initial, ((t, {**fields, "rule": self._name, "active": True, "since_ms": began[-1]}),), remarks)
        for place in range(len(began) - 1, 0, -1):  # backwards, so that one reading meets one condition
            earlier = began[place - 1]
            if met[place] is True and earlier is not None:
                began[place] = max(earlier, began[place] or 0)
        if met[0] is True:
            began[0] = t
        return Stepped(began, (), remarks)
