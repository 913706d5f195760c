"""Readings that may be lost: they wait in a bounded queue and go out with QoS 0.

They are plain JSON objects. Lost ones are counted by stream and reason until they are reported
(`take_unsaid`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.mqtt_link import TooLarge

QUEUE_FULL: Final = "one_way_queue"
"""The reason of a loss: newer readings took its place in the queue while there was no connection,
or a slow one."""
TOO_LARGE: Final = "oversize"
"""Reason of a loss: the broker takes no packet as large."""
STOPPED: Final = "stopped"
"""Reason of a loss: it still waited when the agent stopped."""


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
        self._unsaid = Counter[tuple[str, str]]()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, stream: str, readings: Sequence[Reading]) -> None:
        """Readings of a stream."""
        for t, fields in readings:
            payload = orjson.dumps({"t": t, **fields})
            self._waiting.append((stream, payload))
            self._bytes += len(payload)
            while len(self._waiting) > self._readings_max or (
                self._bytes > self._bytes_max and len(self._waiting) > 1
            ):
                gone, _ = self._take()
                self._drop(gone, QUEUE_FULL)

    def lose(self, stream: str, count: int, reason: str) -> None:
        """Readings were lost before they came here."""
        self._unsaid[stream, reason] += count

    def _drop(self, stream: str, reason: str) -> None:
        self.dropped += 1
        self.lose(stream, 1, reason)

    def give_up(self) -> None:
        """Nobody will send any more: what waits is lost."""
        while self._waiting:
            stream, _ = self._take()
            self._drop(stream, STOPPED)

    def take_unsaid(self) -> dict[tuple[str, str], int]:
        """Take the losses since the last call, by stream and reason.

        There are at most three for each stream.
        """
        unsaid, self._unsaid = self._unsaid, Counter()
        return dict(unsaid)

    def _take(self) -> tuple[str, bytes]:
        stream, payload = self._waiting.popleft()
        self._bytes -= len(payload)
        return stream, payload

    def send(self, may_send: Callable[[], bool], publish: Callable[[str, bytes], None]) -> None:
        """Send as many as may be sent now. `publish` raises TooLarge."""
        while self._waiting and may_send():
            stream, payload = self._take()
            try:
                publish(stream, payload)
            except TooLarge:
                self._drop(stream, TOO_LARGE)
            else:
                self.sent += 1
