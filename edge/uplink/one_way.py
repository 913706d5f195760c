"""Readings that may be lost: they wait in a bounded queue for the connection, and go out with QoS 0, as plain JSON objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import orjson

from edgewake.edge.log.codec import Reading
from edgewake.edge.mqtt_link import TooLarge


class OneWay:
    """The queue. At either of its bounds the oldest go, counted; the latest always has room."""

    def __init__(self, readings_max: int, bytes_max: int) -> None:
        self._readings_max, self._bytes_max = readings_max, bytes_max
        self._waiting: deque[tuple[str, bytes]] = deque()
        """At most `readings_max`, and `bytes_max` bytes of them: `add` drops the oldest."""
        self._bytes = 0
        self.sent = 0
        self.dropped = 0
        """For the newer ones, or because the broker takes no packet as large."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stream: str, readings: Sequence[Reading]) -> None:
        """Readings of a stream."""
        for t, fields in readings:
            payload = orjson.dumps({"t": t, **fields})
            self._waiting.append((stream, payload))
            self._bytes += len(payload)
            while len(self._waiting) > self._readings_max or (self._bytes > self._bytes_max and len(self._waiting) > 1):
                self._take()
                self.dropped += 1

    def _take(self) -> tuple[str, bytes]:
        stream, payload = self._waiting.popleft()
        self._bytes -= len(payload)
        return stream, payload

    def send(self, may_send: Callable[[], bool], publish: Callable[[str, bytes], None]) -> None:
        """As many as may be sent now. `publish` raises TooLarge."""
        while self._waiting and may_send():
            stream, payload = self._take()
            try:
                publish(stream, payload)
            except TooLarge:
                self.dropped += 1
            else:
                self.sent += 1
