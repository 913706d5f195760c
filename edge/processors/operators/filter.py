"""Filter: readings for which a condition is true go on.

A condition that is neither true nor false (a field is missing or has another type) holds its
reading back, with a remark.
"""

from __future__ import annotations

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import FilterConfig
from edgewake.edge.processors.expression import compiled
from edgewake.edge.processors.processor import Remark, State, Stepped


class Filter:
    """The step. It has no state."""

    initial: State = None

    def __init__(self, config: FilterConfig) -> None:
        self._is_wanted = compiled(config.where)

    def step(self, state: State, reading: Reading) -> Stepped:
        wanted = self._is_wanted(reading)
        if wanted is True:
            return Stepped(state, (reading,))
        return Stepped(state, (), () if wanted is False else (Remark.UNKNOWN,))
