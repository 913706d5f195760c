"""The streams that are followed: their tails, filled by the one Kafka reader, bounded in bytes.

Also the order of records. `order` is a record's timestamp, made larger than the horizon, which
moves with each tick: so what came later is ordered later, whatever its timestamp, and all readers
of this process pass records in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from confluent_kafka import TopicPartition

from edgewake.cloud.log.decode import Record
from edgewake.cloud.log.following.view import View
from edgewake.cloud.log.hub_bounds import HubBounds
from edgewake.cloud.log.kafka_reader import Found, RangeLost, ReachedEnd
from edgewake.cloud.log.subscription import Source
from edgewake.cloud.log.tail import Tail
from edgewake.protocol.cursor import Position


@dataclass(eq=False)
class Followed:
    """A stream that is read. `latest` is where each partition ended when it was first followed."""

    source: Source
    tails: list[Tail]
    latest: list[int]
    assignment: int = 0
    """Number of its assignment to the Kafka reader: what came from an earlier one is not its
    own."""
    readers: int = 0
    idle_since: float = 0.0
    closed: str | None = None
    """Why it can be read no further; None while it can."""
    views: set[View[Any]] = field(default_factory=set)
    unindexed: set[View[Any]] = field(default_factory=set)
    """The views that test every record themselves."""
    bytes: int = 0
    """The bytes of its tails."""

    def live(self) -> tuple[Position, ...]:
        """The positions of the live end."""
        return tuple(
            (max(tail.end, latest), 0) for tail, latest in zip(self.tails, self.latest, strict=True)
        )

    def has_caught_up(self) -> bool:
        """Do the tails reach to where the stream ended when it was first followed?

        Before, their end is not its end.
        """
        return all(tail.end >= latest for tail, latest in zip(self.tails, self.latest, strict=True))

    def partitions(self) -> list[TopicPartition]:
        """The partitions with the offsets to read on from."""
        return [TopicPartition(self.source.topic, p, tail.end) for p, tail in enumerate(self.tails)]


OnLost: TypeAlias = Callable[[Followed], None]
IsLookedAt: TypeAlias = Callable[[Sequence[Tail], int], bool]


class FollowedStreams:
    """The streams that are followed.

    `on_lost` is called for a stream whose next records are no longer retained. `is_looked_at` says
    of a stream's tails and the number of a partition whether the index has looked at its oldest
    record.
    """

    def __init__(
        self, config: HubBounds, *, on_lost: OnLost, is_looked_at: IsLookedAt = lambda *_: True
    ) -> None:
        self.by_name: dict[str, Followed] = {}
        self.bytes = 0
        """The bytes of all tails."""
        self.records = 0
        """Records that came since the start."""
        self.horizon = 0
        self._config = config
        self._on_lost = on_lost
        self._is_looked_at = is_looked_at
        self._by_topic: dict[str, Followed] = {}
        self._assignments = 0
        self._newest = 0
        self._changed: set[Followed] = set()

    def add(self, entry: Followed) -> None:
        """Follow one more."""
        self._assignments += 1
        entry.assignment = self._assignments
        self.by_name[entry.source.name] = entry
        self._by_topic[entry.source.topic] = entry

    def drop(self, entry: Followed) -> bool:
        """Follow one no longer; False where it was not followed."""
        if self.by_name.get(entry.source.name) is not entry:
            return False
        del self.by_name[entry.source.name]
        del self._by_topic[entry.source.topic]
        self.bytes -= entry.bytes
        self._changed.discard(entry)
        return True

    def add_batch(self, assignments: Mapping[str, int], batch: Sequence[Found]) -> int:
        """Put the Kafka reader's records into the tails.

        Return their bytes, 0 where no tail moved.
        """
        size = 0
        for topic, partition, found in batch:
            entry = self._by_topic.get(topic)
            if entry is not None and entry.assignment == assignments.get(topic):
                size += self._add_one(entry, partition, found)
        return size

    def tick(self) -> set[View[Any]]:
        """Move the horizon past all that came; the views that look themselves at what came."""
        self.horizon = max(self.horizon, self._newest)
        changed, self._changed = self._changed, set()
        return {view for entry in changed for view in entry.unindexed}

    def _add_one(
        self, entry: Followed, partition: int, found: Record | ReachedEnd | RangeLost
    ) -> int:
        tail = entry.tails[partition]
        match found:
            case RangeLost():
                self._on_lost(entry)
                return 0
            case ReachedEnd(offset):
                tail.reaches(offset)
                return 0
            case record:
                self.records += 1
                if record.offset >= entry.latest[partition]:
                    record.order = max(record.timestamp, self.horizon + 1)
                self._newest = max(self._newest, record.order)
                added = tail.append(record)
                entry.bytes += added
                self.bytes += added
                self._changed.add(entry)
                self._keep_within_bounds(entry)
                return len(record.value) + 1

    def _keep_within_bounds(self, entry: Followed) -> None:
        """Evict a stream's oldest records while it is over its bound.

        What the index has yet to look at stays: each of thousands of views would read it by
        itself, and the server never come along again. While all streams together are over theirs,
        evict the largest's.
        """
        while entry.bytes > self._config.tail_bytes:
            partition = _oldest(entry.tails)
            if not self._is_looked_at(entry.tails, partition):
                break
            self._evict(entry, partition)
        while self.bytes > self._config.tails_bytes:
            largest = max(self.by_name.values(), key=lambda other: other.bytes)
            self._evict(largest, _oldest(largest.tails))

    def _evict(self, entry: Followed, partition: int) -> None:
        freed = entry.tails[partition].evict()
        entry.bytes -= freed
        self.bytes -= freed


def _oldest(tails: Sequence[Tail]) -> int:
    """The partition with the oldest record."""
    return min(
        (p for p, tail in enumerate(tails) if len(tail)), key=lambda p: tails[p].oldest().order
    )
