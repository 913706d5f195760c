"""Readings that may be lost: they wait in a bounded queue for the connection, and go out with QoS 0, as plain JSON objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import orjson

from edgewake.edge.log.codec import Reading
from edgewake.edge.mqtt_link import TooLarge


class OneWay:
    """The queue. At its bound the oldest go, counted."""

    def __init__(self, readings_max: int) -> None:
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=readings_max)
        self.sent = 0
        self.dropped = 0
        """For the newer ones, or because the broker takes no packet as large."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stream: str, readings: Sequence[Reading]) -> None:
        """Readings of a stream."""
        for t, fields in readings:
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append((stream, orjson.dumps({"t": t, **fields})))

    def send(self, may_send: Callable[[], bool], publish: Callable[[str, bytes], None]) -> None:
        """As many as may be sent now. `publish` raises TooLarge."""
        while self._waiting and may_send():
            stream, payload = self._waiting.popleft()
            try:
                publish(stream, payload)
            except TooLarge:
                self.dropped += 1
            else:
                self.sent += 1
