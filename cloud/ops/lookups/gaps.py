"""Finds gaps in a stream: readings that were lost or are missing, by its newest records.

Gaps are stored only beside readings in the log, so the log is scanned backwards, at most
RECORDS_MAX records of each partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Message
from pydantic import BaseModel

from edgewake.cloud.ops.lookups.kafka_lookup import DeadlinePassed, KafkaSession
from edgewake.protocol import topics
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.corrected_time import corrected_ms
from edgewake.protocol.frames.frame import Frame, Gap

RECORDS_MAX: Final = 20_000
"""The most records of one partition that a request scans, the newest ones."""
HELD_BYTES_MAX: Final = 1024
"""The most bytes of a record that is held for its device until a gap may follow it: 20 MB in a
partition of RECORDS_MAX devices. A larger one is decoded immediately."""


class GapView(BaseModel):
    """A gap."""

    device: str
    at: int
    """When it was reported, ms since 1970 UTC, by Kafka's clock."""
    reason: str
    """The device's reason (quota, damage, …), or the sequencer's (open, missing, restarted, …)."""
    count: int
    """How many readings are lost permanently; 0: unknown, or they may still come."""
    epoch: int | None
    seq: int | None
    """The number of the first reading after it."""
    before_t: int | None
    """Event time, ms, of the device's last reading before it; null: none was scanned."""
    after_t: int | None
    """Event time, ms, of its first reading after it; null: none has come yet."""
    partition: int
    offset: int


class Gaps(BaseModel):
    """The gaps of a stream, newest first."""

    items: list[GapView]
    records: int
    """How many records were scanned, the newest of each partition."""
    is_cut: bool
    """Whether older records exist that were not scanned."""


@dataclass(slots=True)
class _Search:
    """Scans the records of one partition, in order."""

    wanted: str | None
    found: list[GapView] = field(default_factory=list)
    _before: dict[bytes, bytes | int | None] = field(default_factory=dict)
    """Device → its last record with readings, decoded only where a gap follows it; for a record
    larger than HELD_BYTES_MAX the event time of its last reading."""
    _open: dict[bytes, list[GapView]] = field(default_factory=dict)
    """Device → its gaps after which no reading has come yet."""

    def take(self, message: Message) -> None:
        """Scans a record."""
        value, key = message.value() or b"", message.key() or b""
        if self.wanted is not None and key != self.wanted.encode():
            return
        gap = _gap_in(value)
        if gap is not None:
            view = self._view(message, key, *gap)
            self.found.append(view)
            self._open.setdefault(key, []).append(view)
            return
        self._before[key] = value if len(value) <= HELD_BYTES_MAX else _time_of(value, -1)
        for one in self._open.pop(key, ()):
            one.after_t = _time_of(value, 0)

    def _view(self, message: Message, key: bytes, frame: Frame, gap: Gap) -> GapView:
        before = self._before.get(key)
        return GapView(
            device=key.decode("utf-8", "replace"),
            at=message.timestamp()[1],
            reason=gap.reason,
            count=gap.count,
            epoch=frame.epoch,
            seq=frame.seq,
            before_t=_time_of(before, -1) if isinstance(before, bytes) else before,
            after_t=None,
            partition=message.partition() or 0,
            offset=message.offset() or 0,
        )


def find(
    session: KafkaSession, stream: str, device: str | None, limit: int, since: int | None = None
) -> Gaps:
    """Finds gaps since a time of Kafka's clock, ms since 1970 UTC. Raises Unavailable."""
    topic = topics.stream_topic(stream)
    found: list[GapView] = []
    looked_at, is_cut = 0, False
    for partition in range(session.partitions(topic)):
        low, high = session.range(topic, partition)
        start = max(low, high - RECORDS_MAX)
        if since is not None:
            first = session.offset_at(topic, partition, since)
            low = high if first is None else max(low, first)
            start = max(low, start)
        is_cut |= start > low
        search = _Search(device)
        try:
            for message in session.read(topic, partition, start, high):
                looked_at += 1
                search.take(message)
        except DeadlinePassed:
            is_cut = True
        found += search.found
    found.sort(key=lambda gap: (gap.at, gap.offset), reverse=True)
    return Gaps(items=found[:limit], records=looked_at, is_cut=is_cut or len(found) > limit)


def _gap_in(value: bytes) -> tuple[Frame, Gap] | None:
    if b'"gap"' not in value:  # This skips decoding nearly all records.
        return None
    try:
        frame = records.decode(value).frame
    except (KeyError, ValueError):
        return None
    return None if frame.gap is None else (frame, frame.gap)


def _time_of(value: bytes, place: int) -> int | None:
    """Returns the corrected event time of the reading at this index of a record."""
    try:
        found = records.decode(value)
    except (KeyError, ValueError):
        return None
    if not found.frame.t:
        return None
    return corrected_ms(found.frame.t[place], shift=found.shift, received_at=found.received_at)
