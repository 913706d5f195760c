"""Limits the records of a lane's next batch to what can be computed in BATCH_S.

A record is a frame of one reading or of thousands, and a query may make a hundred rows of each, so
their cost is measured. A lane that keeps up has a low limit: the first batch of a backlog is small,
and each next one larger as long as it is fast enough.
"""

from __future__ import annotations

from typing import Final

from edgewake.cloud.analysis.schedule.piece_size import PieceSize

BATCH_S: Final = 2.0
"""About how long a batch of a backlog takes, s; meanwhile the lane emits nothing else. The fixed
cost of a batch, 0.1 to 0.25 s, is a small part of it."""
COMPILE_S: Final = 3.0
"""How much longer the first batch after a start may take, s: Spark compiles its plan."""
FIRST: Final = 1_000
"""Records of the first batch of a lane that computes in Spark: at most a million readings, a
second's work. Where the driver makes the rows, PieceSize says how many."""
LEAST_READINGS: Final = 20_000
"""Readings that a batch may always have, in at most as many records as the first one. On a busy
machine the fixed cost alone takes longer than BATCH_S; without this bound batches would become
smaller and smaller."""
LEAST_EXPENSIVE: Final = 1_000
"""Readings that a batch may always have where the driver makes the rows, at ten to a thousand
microseconds each, or where the query is slow (slow.py)."""
_FULL: Final = 0.9
"""The share of its limit from which a batch counts as full. Spark divides the limit among
partitions, and rounds."""


class BatchLimit:
    """Limits the batches of one lane, from its start on. Pure."""

    def __init__(self, most: int, *, is_expensive: bool) -> None:
        """`most`: records of a batch, however fast it is.

        `is_expensive`: does the driver make the rows, or is the query slow?
        """
        self._most = most
        self._least = LEAST_EXPENSIVE if is_expensive else LEAST_READINGS
        self._size = self._first = PieceSize() if is_expensive else PieceSize(FIRST)
        self._has_compiled = False

    @property
    def records(self) -> int:
        """Records that the next batch may have."""
        return min(self._most, self._size.records)

    def learn(self, read: int, readings: int, took_s: float, *, left: int) -> bool:
        """Learn from a batch of `read` records with `readings`, and `left` records after it.

        Returns whether the batch reached its limit, in which case the next one starts immediately.
        """
        is_cut_off = left > 0 and read >= _FULL * self.records
        took_s -= 0.0 if self._has_compiled else COMPILE_S
        self._has_compiled = True
        fitting = self._size.after(read, max(0.0, took_s) / BATCH_S)
        always = min(self._first.records, self._least * read // max(1, readings))
        self._size = PieceSize(max(fitting.records, always))
        return is_cut_off
