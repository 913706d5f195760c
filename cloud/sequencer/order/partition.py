"""One partition of `ew.up` from its records to what one transaction writes.

No I/O: batches and time in, values out.

After `restore`, `start_at` and `replay` have brought back what the process before knew, `step`
gives the records and statements to write, the block rows that are due, and the position. All of it
belongs into one Kafka transaction; should that fail nothing of this object is true any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.sequencer.order.arrival import Arrival, Output
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.frame_order import FrameOrder
from edgewake.cloud.sequencer.order.state_rows import states_in
from edgewake.protocol.frames.sequence import Position

TICK_S: Final = 0.1
"""Seconds between looks at what has waited long enough."""
SWEEP_S: Final = 60.0
"""Seconds between looks at holes and epochs that are too old."""


@dataclass(frozen=True, slots=True)
class Step:
    """The records that are written together."""

    outputs: Sequence[Output]
    rows: Sequence[tuple[int, bytes]]
    """Block → its row."""
    position: Position


class Partition:
    """The order of a partition and its way into and out of rows."""

    def __init__(self, number: int, bounds: Bounds) -> None:
        self.number = number
        self.order = FrameOrder(bounds)
        self.position = Position()
        """The position as it was last restored or stepped."""
        self._ticked_s = float("-inf")
        self._swept_s: float | None = None

    def is_due(self, now_s: float) -> bool:
        """Is there something to do without records?"""
        is_waiting = self.order.held > 0 and now_s - self._ticked_s >= TICK_S
        return is_waiting or self._swept_s is None or now_s - self._swept_s >= SWEEP_S

    @classmethod
    def restore(
        cls, number: int, bounds: Bounds, *, position: Position, blocks: Mapping[int, bytes]
    ) -> Partition:
        """A partition as its rows have it. Raises ValueError."""
        made = cls(number, bounds)
        made.position = position
        made.order.replay_before(position.emitted_before)
        made.order.reserve(sum(map(states_in, blocks.values())))
        for block, value in blocks.items():
            made.order.load_block(block, value)
        return made

    def start_at(self, low: int, high: int, *, now_s: float) -> int:
        """`ew.up` has the offsets `low` to `high`: from where to read.

        The number of records that were deleted unread.

        A recreated topic begins below our position: then nothing of it was passed on yet. What was
        deleted waits no longer: a reader of the position would wait for it until another record
        comes, and bridges that wait let none come.
        """
        read_from, emitted_before, waits_from, received_at = self.position
        if read_from > high or emitted_before > high:
            read_from, emitted_before, waits_from = low, 0, 0
        lost = max(0, low - max(emitted_before, 0)) if read_from >= 0 else 0
        self.position = Position(
            max(low, read_from), max(low, emitted_before), max(low, waits_from), received_at
        )
        self.order.replay_before(self.position.emitted_before)
        self.order.advance(self.position.read_from, now_s=now_s)
        return lost

    def replay(self, arrivals: Sequence[Arrival], position: int, *, now_s: float) -> None:
        """Repeat what these records changed, the last of which ends at `position`.

        They were passed on before, so nothing comes out.
        """
        order = self.order
        order.changes.now_s = now_s
        for arrival in arrivals:
            order.accept(arrival, now_s=now_s)
        order.outcomes.clear()
        order.advance(position, now_s=now_s)

    @property
    def next_offset(self) -> int:
        """The offset of the first record that was never passed on."""
        return max(self.position.read_from, self.position.emitted_before)

    def step(
        self, arrivals: Sequence[Arrival], position: int, *, now_s: float, now_ms: int
    ) -> Step | None:
        """Accept these records, the last of which ends at `position`; and what is due by time.

        None: there is nothing to write.
        """
        order = self.order
        order.changes.now_s = now_s
        out: list[Output] = []
        accept = order.accept
        for arrival in arrivals:
            out += accept(arrival, now_s=now_s)
        before = max(self.position.emitted_before, 0)
        emitted_before = max(before, position)
        if self.is_due(now_s):
            self._ticked_s = now_s
            out += order.tick(now_s=now_s, now_ms=now_ms, offset=position)
            out += self._sweep(now_s, now_ms, position)
        is_row_due = order.changes.has_urgent or order.changes.has_due()
        if not out and emitted_before == before and not is_row_due:
            return None
        rows = [
            (block, order.block_row(block, through=position))
            for block in order.changes.due(position)
        ]
        received_at = arrivals[-1].received_at if arrivals else self.position.received_at
        self.position = Position(
            order.read_from(position), emitted_before, order.waits_from(emitted_before), received_at
        )
        return Step(out, rows, self.position)

    def _sweep(self, now_s: float, now_ms: int, position: int) -> list[Output]:
        if self._swept_s is None or now_s - self._swept_s < SWEEP_S:
            self._swept_s = now_s if self._swept_s is None else self._swept_s
            return []
        self._swept_s = now_s
        return self.order.sweep(now_ms=now_ms, offset=position)
