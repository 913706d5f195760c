"""Which blocks of states differ from their rows on `ew.sequence`, and when they are written.

No I/O.

Records below `emitted_before` were passed on, so reading them again only has to repeat the changes
of state. A block is therefore written a minute after its first change, or after REPLAY_RECORDS; at
once only where something was decided that the records do not tell: by time, by a bound, or by what
the clocks said.
"""

from __future__ import annotations

from typing import Final

ROW_S: Final = 60.0
"""Seconds between two rows of a block that changes all the time."""
REPLAY_RECORDS: Final = 5_000
"""Records of a partition that are read again after a restart at most, beside those that wait. A
process that takes half of the partitions over at full load reads 160,000 again: some seconds beside
its own. Fewer would write a block's row too often (here one per 20 records)."""


class Changes:
    """Blocks that changed since their last row."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[int, float]] = {}
        """Block → offset and time of its first change."""
        self._early: dict[int, int] = {}
        """Block → an earlier offset: of a frame that had waited while others were noted."""
        self._newest = -1
        self._at_once: set[int] = set()
        self.now_s = 0.0
        """Monotonic clock; set once per step."""

    def note(self, block: int, offset: int) -> None:
        """The record at this offset changed a state of the block."""
        since = self._since.get(block)
        if since is None:
            self._since[block] = (offset, self.now_s)
        elif offset >= since[0]:
            return
        if offset < self._newest:
            self._early[block] = min(offset, self._early.get(block, offset))
        else:
            self._newest = offset

    def decided(self, block: int, offset: int) -> None:
        """Write the state's row in this transaction.

        Its records alone would not repeat the change.
        """
        self.note(block, offset)
        self._at_once.add(block)

    def due(self, position: int) -> list[int]:
        """The blocks whose rows are written now; they count as unchanged from here on."""
        found = self._at_once
        self._at_once = set()
        for block, (offset, since_s) in self._since.items():
            if self.now_s - since_s < ROW_S and position - offset < REPLAY_RECORDS:
                break
            found.add(block)
        for block in found:
            self._since.pop(block, None)
            self._early.pop(block, None)
        return sorted(found)

    def has_due(self) -> bool:
        """Has a change waited for its row as long as one may?

        Without new records it would wait without end, and with it the deletion of `ew.up`.
        """
        first = next(iter(self._since.values()), None)
        return first is not None and self.now_s - first[1] >= ROW_S

    @property
    def has_urgent(self) -> bool:
        """Must something be written, whether records came or not?"""
        return bool(self._at_once)

    def read_from(self, position: int) -> int:
        """The first offset whose effect is in no row."""
        first = next(iter(self._since.values()))[0] if self._since else position
        return min(position, first, *self._early.values())
