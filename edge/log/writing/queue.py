"""Readings on their way to a commit, and those that did not fit. No I/O, no lock.

There is one queue per stream, bounded in readings and in memory.

All queues share a number of bytes. A stream may have in its queue at most as much as is still free
for all: one alone gets half, and a flood of large readings leaves room for every other source. What
is taken for a commit counts until it is durable, for it is in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Final

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.log.tables.bundle import Bundle, Pile, parts_of
from edgewake.edge.log.tables.codec import Reading

READING_BYTES: Final = 250
"""Memory of a reading beside its fields: tuple, time, dictionary."""
FIELD_BYTES: Final = 100
"""Memory of a field with a number: its place in the dictionary, and the number."""


def size_of(reading: Reading) -> int:
    """Bytes of memory that a reading takes, about."""
    fields = reading[1]
    texts = [value for value in fields.values() if value.__class__ is str]
    size = READING_BYTES + FIELD_BYTES * len(fields)
    return size + sum(map(getsizeof, texts)) if texts else size


@dataclass(slots=True)
class Queue:
    """The readings of one stream that wait for the writer."""

    lane: Lane = Lane.NORMAL
    pending: list[Reading] = field(default_factory=list)
    """Those that came one by one, behind `before`."""
    before: list[Sequence[Reading]] = field(default_factory=list)
    """Bundles, and what came one by one between them, in order."""
    before_count: int = 0
    """Readings in these."""
    bytes_max: int | None = None
    """Bytes that it may hold, where that is less than what is free for it."""
    size: int = 0
    """Bytes of what is not durable yet."""
    taken_size: int = 0
    """The size of those that a commit has taken."""
    appended: int = 0
    accepted: int = 0
    is_promised: bool = False
    """Will a sender hear that what waits here is kept?"""
    lost: dict[str, int] = field(default_factory=dict)
    """Readings that were lost before they got a place in the log, by reason; the next commit says
    so in a gap."""

    @property
    def count(self) -> int:
        """Readings that wait for a commit to take them."""
        return self.before_count + len(self.pending)

    def add(self, bundle: Bundle) -> None:
        """Behind all others."""
        if self.pending:
            self.before.append(self.pending)
            self.before_count += len(self.pending)
            self.pending = []
        self.before.append(bundle)
        self.before_count += len(bundle)

    def take(self) -> Sequence[Reading]:
        """All of them, in order; it is empty then."""
        parts = [*self.before, self.pending] if self.pending else self.before
        self.pending, self.before, self.before_count = [], [], 0
        return parts[0] if len(parts) == 1 else Pile(parts)


class Queues:
    """The queues of all streams."""

    def __init__(self, *, readings_max: int, bytes_max: int) -> None:
        """At most `readings_max` readings in each, `bytes_max` bytes in all.

        One call may exceed both by what it brings.
        """
        self._readings_max = readings_max
        self._bytes_max = bytes_max
        self._by_stream: dict[str, Queue] = {}
        self.size = 0
        self.stopped: frozenset[Lane] = frozenset()
        """Lanes that take no more: what is in their queues is still committed."""
        self.dropping: frozenset[Lane] = frozenset()
        """Lanes that lose what comes next, but for what is promised already."""

    def of(self, stream: str, lane: Lane) -> Queue:
        """A stream's queue, made at first use."""
        return self._by_stream.setdefault(stream, Queue(lane))

    def has_room(self, queue: Queue) -> bool:
        """May one more reading, or one more call's, be added?"""
        free = self._bytes_max - self.size
        if queue.bytes_max is not None:
            free = min(free, queue.bytes_max)
        return (
            queue.count < self._readings_max
            and queue.size <= free
            and queue.lane not in self.stopped
        )

    def may_promise(self, queue: Queue) -> bool:
        """May a sender hear that what it brings now is kept?"""
        return self.has_room(queue) and queue.lane not in self.dropping

    def add(self, queue: Queue, readings: Iterable[Reading]) -> None:
        """At the end."""
        for part in parts_of(readings):
            if type(part) is Bundle:
                queue.add(part)
                count, size = len(part), part.size
            else:
                # It may raise: then none of it has come.
                come = part if isinstance(part, list) else list(part)
                count, size = len(come), sum(map(size_of, come))
                queue.pending += come
            queue.appended += count
            queue.size += size
            self.size += size

    @property
    def is_waiting(self) -> bool:
        """Is there a reading for a commit?"""
        return any(queue.count for queue in self._by_stream.values())

    @property
    def waiting_streams(self) -> list[str]:
        """Streams that have a reading for a commit."""
        return [stream for stream, queue in self._by_stream.items() if queue.count]

    @property
    def waiting_lanes(self) -> set[Lane]:
        """Lanes that have a reading for a commit."""
        return {queue.lane for queue in self._by_stream.values() if queue.count}

    @property
    def longest(self) -> int:
        """Readings in the longest."""
        return max((queue.count for queue in self._by_stream.values()), default=0)

    @property
    def all_durable(self) -> bool:
        """Is nothing left on its way?"""
        return all(
            queue.appended == queue.accepted and not queue.lost
            for queue in self._by_stream.values()
        )

    def take(self) -> dict[str, Sequence[Reading]]:
        """Everything, for a commit; until it is `accepted`, nothing more is taken."""
        taken: dict[str, Sequence[Reading]] = {}
        for stream, queue in self._by_stream.items():
            if queue.count:
                taken[stream], queue.taken_size = queue.take(), queue.size
        return taken

    def take_promised(self) -> frozenset[str]:
        """Streams of what was taken whose senders hear that it is kept."""
        found = frozenset(stream for stream, queue in self._by_stream.items() if queue.is_promised)
        for stream in found:
            self._by_stream[stream].is_promised = False
        return found

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
