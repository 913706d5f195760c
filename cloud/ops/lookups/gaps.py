"""What of a stream was lost or is missing, as its log says: gaps among its newest records.

Nothing keeps gaps apart from the readings beside which they stand, so they are looked for in the
log, backwards no further than RECORDS_MAX records of each partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from confluent_kafka import Message
from pydantic import BaseModel

from edgewake.cloud.ops.lookups.kafka_lookup import DeadlinePassed, KafkaSession
from edgewake.protocol import topics
from edgewake.protocol.frames import record as records

RECORDS_MAX: Final = 20_000
"""Records of one partition that one question looks at, the newest."""


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
    partition: int
    offset: int


class Gaps(BaseModel):
    """Gaps of a stream, the newest first."""

    items: list[GapView]
    records: int
    """Records that were looked at, the newest of each partition."""
    is_cut: bool
    """There are older records, which were not looked at."""


def find(session: KafkaSession, stream: str, device: str | None, limit: int) -> Gaps:
    """Raises Unavailable."""
    topic = topics.stream_topic(stream)
    found: list[GapView] = []
    looked_at, is_cut = 0, False
    for partition in range(session.partitions(topic)):
        low, high = session.range(topic, partition)
        start = max(low, high - RECORDS_MAX)
        is_cut |= start > low
        try:
            for message in session.read(topic, partition, start, high):
                looked_at += 1
                found += _gap_of(message, device)
        except DeadlinePassed:
            is_cut = True
    found.sort(key=lambda gap: (gap.at, gap.offset), reverse=True)
    return Gaps(items=found[:limit], records=looked_at, is_cut=is_cut or len(found) > limit)


def _gap_of(message: Message, device: str | None) -> Iterator[GapView]:
    value = message.value() or b""
    if b'"gap"' not in value:  # nearly all: they are not read
        return
    key = (message.key() or b"").decode("utf-8", "replace")
    if device is not None and key != device:
        return
    try:
        frame = records.decode(value).frame
    except (KeyError, ValueError):
        return
    if frame.gap is not None:
        yield GapView(
            device=key,
            at=message.timestamp()[1],
            reason=frame.gap.reason,
            count=frame.gap.count,
            epoch=frame.epoch,
            seq=frame.seq,
            partition=message.partition() or 0,
            offset=message.offset() or 0,
        )
