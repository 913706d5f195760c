"""A step with its own state for each value of a field.

A gateway that speaks for many vehicles has one per `vehicle`, for instance. What is made of a
reading carries the value too. At most `keys_max` values are remembered: for one more, the state
that was unused longest is dropped, with a remark. A reading without the field belongs to the value
null.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import orjson

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.processor import Applied, Remark, State, Step, stepped
from edgewake.protocol.frames.frame import Scalar

KEY_CHARS_MAX: Final = 256
"""Characters of a text that is a key: they are in the state, which is written often. A reading with
a longer one is left out, with a remark."""


class Keyed:
    """The processor. Its state: key as JSON → the step's state, unused longest first."""

    def __init__(self, step: Step, by: str, keys_max: int) -> None:
        self._step = step
        self._by = by
        self._keys_max = keys_max
        self.initial: State = {}

    def apply(self, state: State, readings: Sequence[Reading]) -> Applied:
        states = dict(state)
        out: list[Reading] = []
        remarks: Counter[str] = Counter()
        for reading in readings:
            value = reading[1].get(self._by)
            if isinstance(value, str) and len(value) > KEY_CHARS_MAX:
                remarks[Remark.KEY_REFUSED] += 1
                continue
            key = _key(value)
            states[key], made, said = stepped(
                self._step, states.pop(key, self._step.initial), reading
            )
            remarks.update(said)
            out += [(t, {self._by: value, **fields}) for t, fields in made]
            if len(states) > self._keys_max:
                del states[next(iter(states))]
                remarks[Remark.KEY_FORGOTTEN] += 1
        return Applied(states, out, remarks)

    def reduced(self, state: State) -> State:
        """Without the half that is unused longest, and at least one."""
        return dict(list(state.items())[(len(state) + 1) // 2 :])


def _key(value: Scalar) -> str:
    """The value as JSON, so that "1" and 1 are two keys; 1 and 1.0 are one."""
    return orjson.dumps(
        int(value)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53
        else value
    ).decode()
