"""The log's state in memory while a transaction changes it.

A value, no I/O: it is taken over after COMMIT, or forgotten.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from edgewake.edge.log.keeping.work import FrameKey, OutFrame
from edgewake.edge.log.tables.consumers import ConsumerState
from edgewake.edge.log.tables.schema import BACKLOG_BYTES, RETAINED_BYTES
from edgewake.edge.log.tables.sidecar import Change
from edgewake.edge.log.tables.streams import StreamState


@dataclass(slots=True)
class Draft:
    """The state as it will be after COMMIT."""

    streams: dict[str, StreamState]
    outstanding: dict[FrameKey, int]
    unsent: deque[FrameKey]
    stored_bytes: int
    """The bytes of all rows."""
    framed_bytes: int
    """The bytes of batches that are in frames."""
    retained_bytes: int
    """The bytes of batches that the cloud has and a consumer has not."""
    waiting: dict[str, int]
    """The bytes of batches that wait for their frame, by stream."""
    counters: dict[str, int]
    consumers: dict[str, ConsumerState]
    frames: list[OutFrame] = field(default_factory=list)
    dropped: int = 0
    change: Change = field(default_factory=Change)

    def copy(self) -> Draft:
        return replace(
            self,
            streams=dict(self.streams),
            outstanding=dict(self.outstanding),
            unsent=deque(self.unsent),
            waiting=dict(self.waiting),
            counters=dict(self.counters),
            consumers=dict(self.consumers),
            frames=[],
            dropped=0,
            change=Change(),
        )

    @property
    def sums(self) -> dict[str, int]:
        """What the log's counters say of its rows."""
        return {
            BACKLOG_BYTES: self.framed_bytes + self.waiting_bytes,
            RETAINED_BYTES: self.retained_bytes,
        }

    @property
    def waiting_bytes(self) -> int:
        """The bytes that wait in all streams."""
        return sum(self.waiting.values())

    def wait_more(self, stream: str, size: int) -> None:
        """`size` more bytes of a stream wait for their frame."""
        self.waiting[stream] = self.waiting.get(stream, 0) + size

    def add(self, name: str, count: int) -> None:
        self.counters[name] = self.counters.get(name, 0) + count
