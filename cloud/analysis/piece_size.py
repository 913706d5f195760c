"""How many records of a log are summed up at once, so that what comes of them fits into memory. Pure.

A frame of a busy device falls into one minute; one of a device that measures each minute, and was silent for a week, into a thousand. How
many summaries a record gives is learned from the records before, from a few at first: after a restart, too, which may have come about
because they did not fit. A piece that could not be computed may have been too large, and makes the next one smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST: Final = 100
"""Records, while nothing is known."""
ROWS: Final = 5_000
"""Summaries that one job may give, of 1 KiB (few readings) to 100 KiB each, and each half a millisecond of a processor."""
GROWTH: Final = 8
"""How much larger the next piece is at most: the records after these may be of other devices."""
SHRINK: Final = 32
"""How much smaller it is after one that could not be computed."""


@dataclass(frozen=True, slots=True)
class PieceSize:
    """Records of the next piece."""

    records: int = FIRST

    def after(self, read: int, rows: int) -> PieceSize:
        """What is right after a job of `read` records that gave `rows` summaries."""
        if not read:
            return self
        fitting = max(1, ROWS * read // max(1, rows))
        return PieceSize(min(fitting, max(self.records, read) * GROWTH))

    def after_failure(self, records: int) -> PieceSize:
        """What is tried after a job of `records` records that failed."""
        return PieceSize(max(1, records // SHRINK))
