"""Windows by count: tumbling (`size_count` readings), or sliding (one every `every_count`).

Every reading counts, whatever its time; a window that is not full yet makes none. What a window
makes has the time of its last reading.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.operators import panes
from edgewake.edge.processors.processor import State, Stepped


class CountWindow:
    """The step. Its state: {"full": panes, "open": the pane that is being filled}."""

    def __init__(
        self, fields: Sequence[str], aggregates: Sequence[str], *, size: int, every: int
    ) -> None:
        """`size` is a multiple of `every`."""
        self._fields = fields
        self._aggregates = aggregates
        self._every = every
        self._width = size // every
        self.initial: State = {"full": [], "open": panes.empty()}

    def step(self, state: State, reading: Reading) -> Stepped:
        t, fields = reading
        pane, remarks = panes.add(state["open"], self._fields, fields)
        if pane["readings"] < self._every:
            return Stepped(state | {"open": pane}, (), remarks)
        full = [*state["full"], pane][-self._width :]
        after = {"full": full if self._width > 1 else [], "open": panes.empty()}
        if len(full) < self._width:
            return Stepped(after, (), remarks)
        return Stepped(
            after,
            ((t, panes.summary(panes.joined(full), self._fields, self._aggregates)),),
            remarks,
        )
