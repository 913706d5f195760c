"""What the index found for a view while nobody was there to get it. Pure.

Who comes back later is handed what is his of it, and reads nothing by himself: complete are all
places from `start` on. Where there is too much, the oldest go first, and `start` is behind them.

    VIEW_BYTES_MAX    of one view: a chunk, which is what a slow client holds back at most
    BYTES_MAX         of all views of a server
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from edgewake.cloud.log.following.fan_out import Candidate
from edgewake.cloud.log.subscription import Positions

VIEW_BYTES_MAX: Final = 64 * 1024
BYTES_MAX: Final = 32 << 20
"""Some 40,000 events: eight seconds of 5,000 readers who each get one a second."""
CANDIDATE_BYTES: Final = 600
"""Memory of an event beside its data, roughly: its fields, and where it stands."""


class MissedBytes:
    """The bytes that all views of a server keep."""

    def __init__(self, most: int = BYTES_MAX, of_view: int = VIEW_BYTES_MAX) -> None:
        self.most, self.of_view = most, of_view
        self.held = 0


class Missed:
    """What one view missed."""

    def __init__(self, room: MissedBytes) -> None:
        self.start: Positions | None = None
        """From here on all that was found is here; None: nothing is known."""
        self.end: Positions = ()
        """How far the index had looked when it found the last of it."""
        self.found: deque[Candidate] = deque()
        """In the order in which it was found; bounded by `room`."""
        self._room = room
        self._bytes = 0

    def begin(self, start: Positions) -> None:
        """Keep what is found from here on, and nothing of before."""
        self._clear()
        self.start = self.end = start

    def forget(self) -> None:
        """Something may be found that is not told here."""
        self._clear()
        self.start = None

    def add(self, found: Sequence[Candidate], end: Positions) -> None:
        """What was found between the last `end` and this one."""
        if self.start is None:
            self.begin(end)
            return
        self.end = end
        self.found.extend(found)
        self._hold(sum(map(_bytes_of, found)))
        if self._is_over():
            self._drop()

    def _is_over(self) -> bool:
        return self._bytes > self._room.of_view or self._room.held > self._room.most

    def _drop(self) -> None:
        """Drop the oldest: who stands before them reads by himself."""
        assert self.start is not None
        start = [list(row) for row in self.start]
        while self.found and self._is_over():
            one = self.found.popleft()
            self._hold(-_bytes_of(one))
            row = start[one.stream]
            row[one.partition] = max(row[one.partition], one.after)
        self.start = tuple(map(tuple, start))

    def _clear(self) -> None:
        self._hold(-self._bytes)
        self.found.clear()

    def _hold(self, change: int) -> None:
        self._bytes += change
        self._room.held += change


def _bytes_of(one: Candidate) -> int:
    return len(one.event.data) + CANDIDATE_BYTES
