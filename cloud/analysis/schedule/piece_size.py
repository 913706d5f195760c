"""How many records of a log are computed at once, so that it fits into memory and into a time.

Pure.

A frame of a busy device falls into one minute; one of a device that measures each minute, and was
silent for a week, into a thousand. What a record costs is learned from the records before, from a
few at first: after a restart, too, which may have come about because they did not fit. A piece that
could not be computed may have been too large, and makes the next one smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST: Final = 100
"""Records, while nothing is known."""
GROWTH: Final = 8
"""How much larger the next piece is at most: the records after these may be of other devices."""
SHRINK: Final = 32
"""How much smaller it is after one that could not be computed."""


@dataclass(frozen=True, slots=True)
class PieceSize:
    """Records of the next piece."""

    records: int = FIRST

    def after(self, read: int, share: float) -> PieceSize:
        """The size after a piece of `read` records, by its cost in relation to the allowed one.

        2 is twice as much.
        """
        if not read:
            return self
        largest = max(self.records, read) * GROWTH
        return PieceSize(max(1, int(read / share)) if read < share * largest else largest)

    def after_failure(self, records: int) -> PieceSize:
        """What is tried after a piece of `records` records that failed."""
        return PieceSize(max(1, records // SHRINK))
