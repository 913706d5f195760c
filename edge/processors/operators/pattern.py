"""Pattern rule: raises an alert when conditions came true one after the other, within a time.

For example, a door opened, then cold, then a stop. Each condition needs a reading of its own;
readings between them do not matter. It makes one reading for each match, with `rule`, `active`
true, `since_ms` (the first condition's time) and the fields of the reading that completed it; then
it starts again, so no reading is in two matches of one rule.

protocol/patterns/succession.py says which beginnings are remembered. A condition that is neither
true nor false is not met, with a remark. Where the time goes backwards, beginnings that are in the
future are dropped, with a remark.
"""

from __future__ import annotations

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import PatternConfig
from edgewake.edge.processors.expression import compiled
from edgewake.edge.processors.processor import Remark, State, Stepped
from edgewake.protocol.patterns import succession


class Pattern:
    """The step.

    Its state: for 1, 2, … conditions met, when the latest such beginning was, or null.
    """

    def __init__(self, config: PatternConfig) -> None:
        self._name = config.name
        self._conditions = [compiled(text) for text in config.sequence]
        self._within_ms = config.within_s * 1000
        self.initial: State = succession.nothing(len(self._conditions))

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        met = [condition(reading) for condition in self._conditions]
        remarks = [Remark.UNKNOWN] if any(value is None for value in met) else []
        if any(began is not None and began > t for began in state):
            remarks.append(Remark.BACKWARDS)
        began, since = succession.step(state, t, met, self._within_ms)
        alerts = (
            ()
            if since is None
            else ((t, {**fields, "rule": self._name, "active": True, "since_ms": since}),)
        )
        return Stepped(began, alerts, remarks)
