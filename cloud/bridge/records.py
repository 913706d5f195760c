"""What goes to Kafka for a message: a record for `ew.up`, a status for `ew.devices`, or a dead letter with its reason. No I/O."""

from __future__ import annotations

from typing import Final, NamedTuple

from edgewake.cloud.bridge.admit import admit, admit_status, can_answer
from edgewake.cloud.bridge.catalogue import Catalogue
from edgewake.cloud.bridge.compiled import CompiledStreams
from edgewake.cloud.bridge.envelope import Envelope
from edgewake.protocol import topics
from edgewake.protocol.dead_letter import DeadLetter
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.mqtt import PACKET_BYTES_MAX, Unreadable
from edgewake.protocol.names import is_device
from edgewake.protocol.record import PLACEMENT_HEADER

TRUNCATED_BYTES: Final = 64 * 1024
"""Bytes kept of a dead letter that Kafka finds too large even alone: the topic's bound was lowered."""

_STATUS_SLASHES: Final = topics.STATUS_FILTER.count("/")


class KafkaRecord(NamedTuple):
    """A record as Kafka's client takes it."""

    topic: str
    key: str
    value: bytes | None
    """None deletes the key's row in a compacted topic."""
    headers: list[tuple[str, bytes]]
    timestamp: int
    """Milliseconds since 1970, when the message came."""


def record_of(
    message: Envelope | Unreadable, catalogue: Catalogue, *, received_at: int, compiled: CompiledStreams | None = None
) -> KafkaRecord:
    """Check a message and make its record; raises Rejected, NotNow or AwaitsCatalogueError."""
    if isinstance(message, Unreadable):
        reason = RejectReason.OVERSIZE if message.size > PACKET_BYTES_MAX else RejectReason.ENCODING
        raise Rejected(reason, f"publish of {message.size} bytes: {message.why}; {len(message.head)} of them are kept")
    if message.topic.count("/") == _STATUS_SLASHES:
        status = admit_status(message, received_at=received_at)
        return KafkaRecord(topics.DEVICES, f"{status.device}|status", status.to_json(), [], received_at)
    admitted = admit(message, catalogue, received_at=received_at, compiled=compiled)
    return KafkaRecord(topics.UP, admitted.device, admitted.value, [(PLACEMENT_HEADER, admitted.placement)], received_at)


def dead_letter(message: Envelope | Unreadable, refusal: Rejected, *, part: str, received_at: int) -> KafkaRecord:
    """The record that keeps a refused message byte for byte."""
    if isinstance(message, Unreadable):
        value, content_type = message.head, ""
    else:
        value, content_type = message.payload, message.content_type or ""
    letter = DeadLetter(
        reason=refusal.reason,
        detail=refusal.detail,
        topic=message.topic,
        part=part,
        received_at=received_at,
        content_type=content_type,
    )
    return KafkaRecord(topics.DEAD, device_of(message.topic), value, letter.headers(), received_at)


def too_large(record: KafkaRecord, detail: str, *, part: str) -> KafkaRecord | None:
    """The dead letter for a record that Kafka refuses by its size; None where it is one already and cut to its smallest."""
    if record.topic == topics.DEAD:
        value = record.value or b""
        return record._replace(value=value[:TRUNCATED_BYTES]) if len(value) > TRUNCATED_BYTES else None
    letter = DeadLetter(
        reason=RejectReason.OVERSIZE,
        detail=detail,
        topic=f"{record.topic} {record.key}",
        part=part,
        received_at=record.timestamp,
    )
    return record._replace(topic=topics.DEAD, headers=letter.headers())


def device_of(topic: str) -> str:
    """The device of a topic, as far as it has one."""
    parts = topic.split("/")
    return parts[2] if len(parts) > 2 and is_device(parts[2]) else ""


def is_answerable(message: Envelope | Unreadable) -> bool:
    """May the device of a refused message be answered where it asks?"""
    device = device_of(message.topic)
    return bool(device) and message.response_topic is not None and can_answer(message.response_topic, message.correlation_data, device)
