"""Messages with a new stream or field, which wait until the catalogue has it. No I/O.

That takes some ten milliseconds, once for each. They count as in flight like any other, so their
number is bounded with theirs. Messages that follow on the same MQTT topic wait behind them: a
device's messages of a stream stay in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from edgewake.cloud.bridge.mqtt.ack_ledger import Delivery

M = TypeVar("M")


class ParkedMessage(NamedTuple, Generic[M]):
    """A message as it came."""

    message: M
    delivery: Delivery
    received_at: int
    """Milliseconds since 1970."""


class Parked(Generic[M]):
    """The messages that wait, by MQTT topic, in their order."""

    def __init__(self) -> None:
        self._by_topic: dict[str, deque[ParkedMessage[M]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def __contains__(self, topic: str) -> bool:
        return topic in self._by_topic

    def add(self, topic: str, parked: ParkedMessage[M]) -> None:
        """It waits behind those of its topic."""
        self._by_topic.setdefault(topic, deque()).append(parked)

    def heads(self) -> Iterator[tuple[str, ParkedMessage[M]]]:
        """The oldest message of each topic, and the next one when it was removed."""
        for topic in list(self._by_topic):
            head = None
            while (queue := self._by_topic.get(topic)) and queue[0] is not head:
                head = queue[0]
                yield topic, head

    def remove_head(self, topic: str) -> None:
        """The oldest of a topic waits no longer."""
        queue = self._by_topic[topic]
        queue.popleft()
        if not queue:
            del self._by_topic[topic]
