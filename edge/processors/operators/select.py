"""Select: fields get other names, are kept, or are left out.

First `keep` or `drop`, by the names that the fields have, then `rename`. A renamed field takes the
place of one that has its new name. A field that is not there stays away, without a remark: readings
of one stream need not have the same fields. A reading without any field goes nowhere.
"""

from __future__ import annotations

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import SelectConfig
from edgewake.edge.processors.processor import Remark, State, Stepped


class Select:
    """The step. It has no state."""

    initial: State = None

    def __init__(self, config: SelectConfig) -> None:
        self._rename = dict(config.rename)
        self._keep = frozenset(config.keep)
        self._drop = frozenset(config.drop)

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        wanted = {
            name: value
            for name, value in fields.items()
            if name not in self._drop and (not self._keep or name in self._keep)
        }
        same = {name: value for name, value in wanted.items() if name not in self._rename}
        selected = same | {
            self._rename[name]: value for name, value in wanted.items() if name in self._rename
        }
        return (
            Stepped(state, ((t, selected),)) if selected else Stepped(state, (), (Remark.MISSING,))
        )
