"""Frames that wait for an earlier one, with the bounds on them. No I/O.

The largest holder is found in O(log n): sizes are pushed on a heap as they grow, and entries that
are outdated are dropped when they come to its top.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from edgewake.cloud.sequencer.order.arrival import Arrival

_HEAP_SLACK: Final = 8
"""Entries of the heap per holder before it is rebuilt."""


class HeldFrames:
    """The frames of one state that wait, by their own number.

    That of a gap frame is its last: the ones before are those of the frames that it replaces, which
    may wait as well.
    """

    __slots__ = ("_numbers", "arrivals", "bytes")

    def __init__(self) -> None:
        self.arrivals: dict[int, Arrival] = {}
        """In the order in which they came."""
        self.bytes = 0
        self._numbers: list[tuple[int, int]] = []
        """(first, own number), as a heap."""

    @property
    def since_s(self) -> float:
        """When the frame that waits longest began to wait."""
        return next(iter(self.arrivals.values())).held_at_s

    def lowest(self) -> tuple[int, int]:
        """The lowest number that somebody waits with, and that frame's own number."""
        while self._numbers[0][1] not in self.arrivals:
            heapq.heappop(self._numbers)
        return self._numbers[0]

    def add(self, arrival: Arrival) -> None:
        placement = arrival.placement
        self.arrivals[placement.last] = arrival
        self.bytes += arrival.bytes
        heapq.heappush(self._numbers, (placement.first, placement.last))

    def remove(self, number: int) -> Arrival:
        arrival = self.arrivals.pop(number)
        self.bytes -= arrival.bytes
        return arrival


class Holding:
    """Everything of one partition that waits."""

    def __init__(self) -> None:
        self._states: dict[bytes, HeldFrames] = {}
        self._offsets: OrderedDict[int, None] = OrderedDict()
        self._by_size: list[tuple[int, bytes]] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, key: bytes) -> bool:
        return key in self._states

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._states))

    def get(self, key: bytes) -> HeldFrames | None:
        """What waits of one state."""
        return self._states.get(key)

    def add(self, key: bytes, arrival: Arrival) -> bool:
        """Hold a frame; False where one of this number waits already."""
        held = self._states.get(key)
        if held is None:
            held = self._states[key] = HeldFrames()
        elif arrival.placement.last in held.arrivals:
            return False
        held.add(arrival)
        self.bytes += arrival.bytes
        self._offsets[arrival.offset] = None
        heapq.heappush(self._by_size, (-held.bytes, key))
        if len(self._by_size) > _HEAP_SLACK * len(self._states) + 64:
            self._by_size = [(-one.bytes, name) for name, one in self._states.items()]
            heapq.heapify(self._by_size)
        return True

    def remove(self, key: bytes, number: int) -> Arrival:
        """Hold it no longer."""
        held = self._states[key]
        arrival = held.remove(number)
        self.bytes -= arrival.bytes
        del self._offsets[arrival.offset]
        if not held.arrivals:
            del self._states[key]
        else:
            heapq.heappush(self._by_size, (-held.bytes, key))
        return arrival

    def largest(self) -> bytes:
        """The state that holds the most bytes; there is one."""
        while True:
            size, key = self._by_size[0]
            held = self._states.get(key)
            if held is not None and held.bytes == -size:
                return key
            heapq.heappop(self._by_size)

    def first_offset(self, default: int) -> int:
        """The lowest offset that waits. Frames are held in the order of their offsets."""
        return next(iter(self._offsets), default)

    def wait_anew(self, now_s: float) -> None:
        """All that waits begins to wait now."""
        for held in self._states.values():
            for arrival in held.arrivals.values():
                arrival.held_at_s = now_s
