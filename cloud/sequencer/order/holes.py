"""Frames of one state that later ones have passed: which they are, and whether they may still come.

No I/O.

A bounded list of ranges. Each range keeps the reading numbers at its ends, so a count is exact
however often a frame splits it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

HOLES_MAX: Final = 32
"""Ranges remembered per state. One more, and the lowest is counted as lost: what comes of it later
would count as a repeat."""


class Hole(NamedTuple):
    """Frames `first` to `last` have not come; they hold readings from `seq` to before `end_seq`."""

    first: int
    last: int
    seq: int
    end_seq: int
    opened_s: int
    """Seconds since 2020 (state_table.seconds)."""
    counted: bool
    """Is the loss stated already (by the device's own gap frame), or not to be counted (frames
    before an unknown beginning)?"""


class Holes:
    """The holes of one state, ascending, with the names that a statement needs."""

    def __init__(self, device: str, stream: str, epoch: int, via: str = "") -> None:
        self.device, self.stream, self.epoch, self.via = device, stream, epoch, via
        self._holes: list[Hole] = []

    def __len__(self) -> int:
        return len(self._holes)

    def __iter__(self) -> Iterator[Hole]:
        return iter(self._holes)

    def open(self, hole: Hole) -> list[Hole]:
        """Remember a hole above all others; the ones that are forgotten for it."""
        self._holes.append(hole)
        return self._shrink()

    def fill(self, number: int, *, seq: int, readings: int) -> tuple[bool, list[Hole]]:
        """A frame has come: was it in a hole?

        Also the holes that are forgotten because the frame has split one.
        """
        i = self._index(number)
        if i < 0 or self._holes[i].last < number:
            return False, []
        hole = self._holes[i]
        seq = min(max(seq, hole.seq), hole.end_seq)
        end_seq = min(max(seq + readings, seq), hole.end_seq)
        parts = [
            hole._replace(last=number - 1, end_seq=seq),
            hole._replace(first=number + 1, seq=end_seq),
        ]
        self._holes[i : i + 1] = [part for part in parts if part.first <= part.last]
        return True, self._shrink()

    def count(self, first: int, last: int) -> bool:
        """Note that the device's gap frame states these frames as lost: is that new?

        They may still come late.
        """
        news = False
        for i in range(max(0, self._index(first)), len(self._holes)):
            hole = self._holes[i]
            if hole.first > last:
                break
            if hole.last >= first and not hole.counted:
                self._holes[i] = hole._replace(counted=True)
                news = True
        return news

    def close_before(self, opened_s: int) -> list[Hole]:
        """Forget the holes that were opened before; those that nobody counted are lost now."""
        old = [hole for hole in self._holes if hole.opened_s < opened_s]
        self._holes = [hole for hole in self._holes if hole.opened_s >= opened_s]
        return _uncounted(old)

    def close_lowest(self) -> list[Hole]:
        """Forget the lowest hole."""
        return _uncounted([self._holes.pop(0)])

    def _index(self, number: int) -> int:
        return bisect_right(self._holes, number, key=lambda hole: hole.first) - 1

    def _shrink(self) -> list[Hole]:
        surplus = len(self._holes) - HOLES_MAX
        if surplus <= 0:
            return []
        old = self._holes[:surplus]
        del self._holes[:surplus]
        return _uncounted(old)


def _uncounted(holes: list[Hole]) -> list[Hole]:
    return [hole for hole in holes if not hole.counted]
