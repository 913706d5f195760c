"""Derive: new fields from expressions over those that are there.

All of them see the reading as it came, none sees another's result; a field of that name is
replaced. An expression without a value (a field is missing, a division by zero) gives null, with a
remark.
"""

from __future__ import annotations

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import DeriveConfig
from edgewake.edge.processors.expression import compiled
from edgewake.edge.processors.processor import Remark, State, Stepped


class Derive:
    """The step. It has no state."""

    initial: State = None

    def __init__(self, config: DeriveConfig) -> None:
        self._fields = {name: compiled(text) for name, text in config.fields.items()}

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        derived = {name: evaluate(reading) for name, evaluate in self._fields.items()}
        return Stepped(
            state,
            ((t, {**fields, **derived}),),
            [Remark.NULL for value in derived.values() if value is None],
        )
