"""What of a stream was lost or is missing, as its log says: gaps among its newest records.

Nothing keeps gaps apart from the readings beside which they stand, so they are looked for in the
log, backwards no further than RECORDS_MAX records of each partition.
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
"""Records of one partition that one question looks at, the newest."""
HELD_BYTES_MAX: Final = 1024
"""Bytes of a record that is held for its device, until one knows whether a gap follows it: 20 MB of
a partition of RECORDS_MAX devices. A larger one is decoded at once."""


class GapView(BaseModel):
    """A gap."""

    device: str
    at: int
    """When it was said, ms since 1970 UTC, by Kafka's clock."""
    reason: str
    """The device's reason (quota, damage, …), or the sequencer's (open, missing, restarted, …)."""
    count: int
    """Readings that are lost for good; 0: it is not known, or they may still come."""
    epoch: int | None
    seq: int | None
    """The number of the first reading behind it."""
    before_t: int | None
    """Event time, ms, of the device's last reading before it; null: none in what was looked at."""
    after_t: int | None
    """Event time, ms, of its first reading behind it; null: none has come yet."""
    partition: int
    offset: int


class Gaps(BaseModel):
    """Gaps of a stream, the newest first."""

    items: list[GapView]
    records: int
    """Records that were looked at, the newest of each partition."""
    is_cut: bool
    """There are older records, which were not looked at."""


@dataclass(slots=True)
class _Search:
    """Goes through the records of one partition, in order."""

    wanted: str | None
    found: list[GapView] = field(default_factory=list)
    _before: dict[bytes, bytes | int | None] = field(default_factory=dict)
    """Device → its last record with readings, decoded only where a gap follows it; of one larger
    than HELD_BYTES_MAX the event time of its last reading."""
    _open: dict[bytes, list[GapView]] = field(default_factory=dict)
    """Device → its gaps behind which no reading has come yet."""

    def take(self, message: Message) -> None:
        """A record."""
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
    """`since`: by Kafka's clock, ms since 1970 UTC. Raises Unavailable."""
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
    if b'"gap"' not in value:  # nearly all: they are not read
        return None
    try:
        frame = records.decode(value).frame
    except (KeyError, ValueError):
        return None
    return None if frame.gap is None else (frame, frame.gap)


def _time_of(value: bytes, place: int) -> int | None:
    """Event time of the reading at this place of a record, put right where its clock was wrong."""
    try:
        found = records.decode(value)
    except (KeyError, ValueError):
        return None
    if not found.frame.t:
        return None
    return corrected_ms(found.frame.t[place], shift=found.shift, received_at=found.received_at)
