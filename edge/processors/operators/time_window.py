"""Windows of event time: tumbling (`size_s`), or sliding (`size_s`, and one every `every_s`).

Windows begin at multiples of `every_s` since 1970 UTC; a reading that a window makes has the time
of its start. A window is closed by the first reading that is `grace_s` past its end, never by the
clock of the machine: what closes it is in the input, so that the output is the same after every
crash. The price: the last window waits for one more reading. An empty window makes none.

A reading whose pane is closed already is late: it is in no window (a remark). After LATE_RUN_MAX
late ones in a row the clock was set back: what is open is closed, and the windows start again at
that reading (a remark). A reading far in the future therefore costs as many readings, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.operators import panes
from edgewake.edge.processors.operators.panes import Pane
from edgewake.edge.processors.processor import Remark, State, Stepped

LATE_RUN_MAX: Final = 10
"""Late readings in a row that are taken for stragglers. One more, and the clock was set back: the
windows start again."""


class TimeWindow:
    """The step.

    Its state: {"panes": [[number, pane], …] in order, "head": latest event time, "closed": number
    of the last closed pane, "late": late ones in a row}.
    """

    initial: State = None

    def __init__(
        self,
        fields: Sequence[str],
        aggregates: Sequence[str],
        *,
        size_ms: int,
        every_ms: int,
        grace_ms: int,
        plain: bool = False,
    ) -> None:
        """`size_ms` is a multiple of `every_ms`. `plain`: see `panes.summary`."""
        self._fields = fields
        self._aggregates = aggregates
        self._every_ms = every_ms
        self._width = size_ms // every_ms
        self._grace_ms = grace_ms
        self._plain = plain

    def step(self, state: State, reading: Reading) -> Stepped:
        t, _ = reading
        number = t // self._every_ms
        if state is None:
            return self._begin(reading)
        if number <= state["closed"]:
            late = state["late"] + 1
            if late <= LATE_RUN_MAX:
                return Stepped(state | {"late": late}, (), (Remark.LATE,))
            last = [
                out
                for start in self._starts(state["panes"], state["closed"])
                for out in self._window(state["panes"], start)
            ]
            begun = self._begin(reading)
            return Stepped(
                begun.state, [*last, *begun.readings], (Remark.RESTARTED, *begun.remarks)
            )
        added, remarks = self._add(state["panes"], number, reading)
        head = max(state["head"], t)
        closed = (head - self._grace_ms) // self._every_ms - 1
        if closed <= state["closed"]:  # most readings close nothing
            return Stepped(
                {"panes": added, "head": head, "closed": state["closed"], "late": 0}, (), remarks
            )
        out = [
            made
            for last in self._starts(added, state["closed"])
            if last <= closed
            for made in self._window(added, last)
        ]
        kept = [pane for pane in added if pane[0] > closed - self._width + 1]
        return Stepped({"panes": kept, "head": head, "closed": closed, "late": 0}, out, remarks)

    def _begin(self, reading: Reading) -> Stepped:
        t, _ = reading
        number = t // self._every_ms
        added, remarks = self._add([], number, reading)
        closed = (t - self._grace_ms) // self._every_ms - 1
        return Stepped({"panes": added, "head": t, "closed": closed, "late": 0}, (), remarks)

    def _add(
        self, before: Sequence[tuple[int, Pane]], number: int, reading: Reading
    ) -> tuple[list[tuple[int, Pane]], list[str]]:
        *earlier, (newest, pane) = before or [(number, panes.empty())]
        if newest == number:  # most readings belong to the newest pane
            pane, remarks = panes.add(pane, self._fields, reading[1])
            return [*earlier, (number, pane)], remarks
        known: dict[int, Pane] = dict(before)
        known[number], remarks = panes.add(
            known.get(number, panes.empty()), self._fields, reading[1]
        )
        return sorted(known.items(), key=itemgetter(0)), remarks

    def _starts(self, known: Iterable[tuple[int, Pane]], after: int) -> list[int]:
        """Numbers of the last panes of all windows that hold something and are not closed."""
        return sorted(
            {
                last
                for number, _ in known
                for last in range(max(number, after + 1), number + self._width)
            }
        )

    def _window(self, known: Iterable[tuple[int, Pane]], last: int) -> Iterable[Reading]:
        """The window that ends with pane `last`."""
        first = last - self._width + 1
        inside = [pane for number, pane in known if first <= number <= last]
        if inside:
            fields = panes.summary(
                panes.joined(inside), self._fields, self._aggregates, plain=self._plain
            )
            yield max(0, first * self._every_ms), fields
