"""Readings on their way to a commit, and those that did not fit: one queue per stream, bounds in readings and in memory. No I/O, no lock.

All queues share a number of bytes. A stream may have in its queue at most as much as is still free for all: one alone gets half, and a
flood of large readings leaves room for every other source. What is taken for a commit counts until it is durable, for it is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from edgewake.edge.log.codec import Reading
from edgewake.edge.uplink.lanes import Lane

READING_BYTES: Final = 250
"""Memory of a reading beside its fields: tuple, time, dictionary."""
FIELD_BYTES: Final = 100
"""Memory of a field with a number: its place in the dictionary, and the number."""


def size_of(reading: Reading) -> int:
    """Bytes of memory that a reading takes, about."""
    fields = reading[1]
    texts = [value for value in fields.values() if value.__class__ is str]
    return READING_BYTES + FIELD_BYTES * len(fields) + sum(map(getsizeof, texts))


@dataclass(slots=True)
class Queue:
    """One stream's."""

    lane: Lane = Lane.NORMAL
    pending: list[Reading] = field(default_factory=list)
    bytes_max: int | None = None
    """Bytes that it may hold, where that is less than what is free for it."""
    size: int = 0
    """Bytes of what is not durable yet."""
    taken_size: int = 0
    """Of these, what a commit has taken."""
    appended: int = 0
    accepted: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    """Readings that were lost before they got a place in the log, by reason; the next commit says so in a gap."""


class Queues:
    """All of them."""

    def __init__(self, *, readings_max: int, bytes_max: int) -> None:
        """At most `readings_max` readings in each, `bytes_max` bytes in all; one call may exceed both by what it brings."""
        self._readings_max = readings_max
        self._bytes_max = bytes_max
        self._by_stream: dict[str, Queue] = {}
        self.size = 0
        self.stopped: frozenset[Lane] = frozenset()
        """Lanes that take no more: what is in their queues is still committed."""

    def of(self, stream: str, lane: Lane) -> Queue:
        """A stream's queue, made at first use."""
        return self._by_stream.setdefault(stream, Queue(lane))

    def has_room(self, queue: Queue) -> bool:
        """May one more reading, or one more call's, be added?"""
        free = self._bytes_max - self.size
        if queue.bytes_max is not None:
            free = min(free, queue.bytes_max)
        return len(queue.pending) < self._readings_max and queue.size <= free and queue.lane not in self.stopped

    def add(self, queue: Queue, readings: Iterable[Reading]) -> None:
        """At the end."""
        before = len(queue.pending)
        queue.pending.extend(readings)
        added = queue.pending[before:]
        size = sum(map(size_of, added))
        queue.appended += len(added)
        queue.size += size
        self.size += size

    @property
    def is_waiting(self) -> bool:
        """Is there a reading for a commit?"""
        return any(queue.pending for queue in self._by_stream.values())

    @property
    def waiting_streams(self) -> list[str]:
        """Streams that have a reading for a commit."""
        return [stream for stream, queue in self._by_stream.items() if queue.pending]

    @property
    def waiting_lanes(self) -> set[Lane]:
        """Lanes that have a reading for a commit."""
        return {queue.lane for queue in self._by_stream.values() if queue.pending}

    @property
    def longest(self) -> int:
        """Readings in the longest."""
        return max((len(queue.pending) for queue in self._by_stream.values()), default=0)

    @property
    def all_durable(self) -> bool:
        """Is nothing left on its way?"""
        return all(queue.appended == queue.accepted and not queue.lost for queue in self._by_stream.values())

    def take(self) -> dict[str, Sequence[Reading]]:
        """Everything, for a commit; until it is `accepted`, nothing more is taken."""
        taken: dict[str, Sequence[Reading]] = {}
        for stream, queue in self._by_stream.items():
            if queue.pending:
                taken[stream], queue.pending, queue.taken_size = queue.pending, [], queue.size
        return taken

    def take_losses(self) -> dict[str, dict[str, int]]:
        """All losses, by stream and reason; they come after what was taken before."""
        found = {stream: queue.lost for stream, queue in self._by_stream.items() if queue.lost}
        for stream in found:
            self._by_stream[stream].lost = {}
        return found

    def accepted(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        """What was taken is durable."""
        for stream, of in readings.items():
            queue = self._by_stream[stream]
            queue.accepted += len(of)
            queue.size -= queue.taken_size
            self.size -= queue.taken_size
            queue.taken_size = 0

    def losses(self) -> dict[str, int]:
        """Losses that are not said yet, by reason."""
        found: dict[str, int] = {}
        for queue in self._by_stream.values():
            for reason, count in queue.lost.items():
                found[reason] = found.get(reason, 0) + count
        return found
