"""When each lease needs attention next: one heap for all, instead of a timer for each. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Final

SPARE: Final = 1000
"""Entries that are out of date and kept all the same, beside as many as there are leases; with more
the heap is rebuilt."""


class Agenda:
    """Lease ids by time, ms since 1970 UTC; each has one time at most."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, lease_id: str, at: int) -> None:
        """Look at a lease at `at`, and at no other time."""
        if self._at.get(lease_id) != at:
            self._at[lease_id] = at
            heapq.heappush(self._heap, (at, lease_id))
            if len(self._heap) > 2 * len(self._at) + SPARE:
                self._heap = [(at, lease_id) for lease_id, at in self._at.items()]
                heapq.heapify(self._heap)

    def drop(self, lease_id: str) -> None:
        """Look at a lease no more."""
        self._at.pop(lease_id, None)

    def next_at(self) -> int | None:
        """The earliest time; None without entries."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: int) -> Iterator[str]:
        """Take out, one by one and the earliest first, those whose time has come."""
        while (at := self.next_at()) is not None and at <= now:
            _, lease_id = heapq.heappop(self._heap)
            del self._at[lease_id]
            yield lease_id
