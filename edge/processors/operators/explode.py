"""Explode: a list becomes a reading for each of its items.

Lists come as JSON text. An item that is one value stands in the field of the list, or in `into`; of
an item that is an object each value is a field, with that name before it: `wifi_rssi`. All other
fields of the reading are repeated. A reading whose field is missing, null or no list is left out,
with a remark; an empty list gives nothing, without one.
"""

from __future__ import annotations

import orjson

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import EXPLODED_MAX, ExplodeConfig
from edgewake.edge.processors.processor import Remark, State, Stepped
from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames.frame import reading_of


class Explode:
    """The step. It has no state."""

    initial: State = None

    def __init__(self, config: ExplodeConfig) -> None:
        self._field = config.field
        self._into = config.into or config.field
        self._position = config.position

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        text = fields.get(self._field)
        if text is None:
            return Stepped(state, (), (Remark.MISSING,))
        try:
            items = orjson.loads(text) if isinstance(text, str) else None
        except orjson.JSONDecodeError:
            items = None
        if not isinstance(items, list):
            return Stepped(state, (), (Remark.NOT_A_LIST,))
        others = {name: value for name, value in fields.items() if name != self._field}
        made: list[Reading] = []
        said = [Remark.TOO_MANY] if len(items) > EXPLODED_MAX else []
        for number, item in enumerate(items[:EXPLODED_MAX]):
            try:
                _, flat = reading_of({self._into: item}, now_ms=t)
            except Rejected:
                said.append(Remark.TOO_LARGE)
                continue
            more = {} if self._position is None else {self._position: number}
            made.append((t, {**others, **flat, **more}))
        return Stepped(state, made, said)
