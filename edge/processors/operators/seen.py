"""Seen: lets a value's first reading go on and holds back those that repeat it, or marks each.

The memory is that of protocol/sketches/seen.py, which queries have too: the values that were seen
latest, within the capacity and the time. A reading without the field is not counted as a value,
with a remark: it is held back, or goes on without a mark.
"""

from __future__ import annotations

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import SeenConfig
from edgewake.edge.processors.processor import Remark, State, Stepped
from edgewake.protocol.sketches.seen import Seen
from edgewake.protocol.sketches.sketch import item_text


class SeenStep:
    """The step. Its state: that of protocol/sketches/seen.py."""

    initial: State = None

    def __init__(self, config: SeenConfig) -> None:
        forget_ms = None if config.forget_s is None else round(config.forget_s * 1000)
        self._memory = Seen(config.capacity, config.error, forget_ms)
        self._field = config.field
        self._mark = config.mark

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        value = fields.get(self._field)
        if value is None:
            return Stepped(state, () if self._mark is None else (reading,), (Remark.MISSING,))
        state, was_seen = self._memory.step(state, t, item_text(value))
        if self._mark is not None:
            return Stepped(state, ((t, {**fields, self._mark: was_seen}),))
        return Stepped(state, () if was_seen else (reading,))
