"""Rate: how fast a field grows, from two readings, as a field beside the others.

It is null, with a remark, in the first reading, where a value is not a number, and where the time
does not advance; the next rate is from that reading on, so a clock that is set costs one value. A
counter (`counter = true`) that falls has started again: null too.
"""

from __future__ import annotations

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import RateConfig
from edgewake.edge.processors.processor import Remark, State, Stepped, no_number, number


class Rate:
    """The step. Its state: [t, value] of the last reading with a number."""

    initial: State = None

    def __init__(self, config: RateConfig) -> None:
        self._field = config.field
        self._name = config.name or f"{config.field}_rate"
        self._per_ms = config.per_s * 1000
        self._is_counter = config.counter

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        value = number(fields.get(self._field))
        if value is None:
            return self._without(state, reading, no_number(fields.get(self._field)))
        if state is None:
            return self._without([t, value], reading)
        last_t, last = state
        if t <= last_t:
            return self._without([t, value], reading, Remark.BACKWARDS)
        if self._is_counter and value < last:
            return self._without([t, value], reading, Remark.RESTARTED)
        return Stepped(
            [t, value], ((t, {**fields, self._name: (value - last) / (t - last_t) * self._per_ms}),)
        )

    def _without(self, state: State, reading: Reading, *remarks: str) -> Stepped:
        t, fields = reading
        return Stepped(state, ((t, {**fields, self._name: None}),), remarks)
