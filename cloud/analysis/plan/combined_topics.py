"""The topics that a lane reads, with their partitions numbered as if they were one topic's. Pure.

A lane of one stream has its topic's own numbers. Of two topics partition p is 2p and 2p + 1. So
event time goes on as the furthest back of all of them does (event_progress), and a place in the log
has one number, whichever of them it is in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CombinedTopics:
    """The topics of a lane, in the order of the streams that it reads."""

    topics: tuple[str, ...]

    def flat(self, of: Mapping[str, Mapping[int, T]]) -> dict[int, T]:
        """Number of partition → the value of its topic and partition, e.g. an offset."""
        return {
            self.number(topic, partition): one
            for topic in self.topics
            for partition, one in of.get(topic, {}).items()
        }

    def by_topic(self, flat: Mapping[int, T]) -> dict[str, dict[int, T]]:
        """The reverse of `flat`."""
        found: dict[str, dict[int, T]] = {}
        for number, one in flat.items():
            topic, partition = self.place(number)
            found.setdefault(topic, {})[partition] = one
        return found

    def number(self, topic: str, partition: int) -> int:
        """The number of a topic's partition."""
        return partition * len(self.topics) + self.topics.index(topic)

    def place(self, number: int) -> tuple[str, int]:
        """The topic and partition with this number."""
        partition, topic = divmod(number, len(self.topics))
        return self.topics[topic], partition
