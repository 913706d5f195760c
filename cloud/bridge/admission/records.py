"""Makes the Kafka record of a message: for `ew.up`, a status for `ew.devices`, or a dead letter.

No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from edgewake.cloud.bridge.admission.admit import admit, admit_status, can_answer
from edgewake.cloud.bridge.admission.allowance import LeftOut
from edgewake.cloud.bridge.admission.catalogue import Catalogue
from edgewake.cloud.bridge.admission.compiled import CompiledStreams
from edgewake.cloud.bridge.admission.envelope import Envelope, Message
from edgewake.cloud.bridge.admission.items import Aside
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected, RejectReason
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.record import PLACEMENT_HEADER
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.mqtt import PACKET_BYTES_MAX, Unreadable

if TYPE_CHECKING:
    from opentelemetry.trace import Span

TRUNCATED_BYTES: Final = 64 * 1024
"""Bytes kept of a dead letter that Kafka finds too large even alone: the topic's bound was
lowered."""

_STATUS_SLASHES: Final = topics.status("").count("/")
_OUR_TYPES: Final = "application/vnd.edgewake"
_ODD_MARK: Final = b'_odd":['
_ODD_FIELD: Final = re.compile(rb'"([A-Za-z0-9_]{1,64})_odd":\[')
_STATUS_END: Final = "/status"

device_in = lru_cache(maxsize=65_536)(topics.device_in)
"""The device of a topic, as far as it has one: the gateway of one of a thing."""
thing_in = lru_cache(maxsize=65_536)(topics.thing_in)
"""The thing of a topic of a gateway, and the gateway."""


class KafkaRecord(NamedTuple):
    """A record as Kafka's client takes it."""

    topic: str
    key: str
    value: bytes | None
    """None deletes the key's row in a compacted topic."""
    headers: list[tuple[str, bytes]]
    timestamp: int
    """Milliseconds since 1970, when the message came."""
    aside: Sequence[Aside] = ()
    """Readings of it that were set aside, to be dead letters."""
    span: Span | None = None
    """A message that is traced has one, open until Kafka has the record."""


@lru_cache(maxsize=65_536)
def is_status(topic: str) -> bool:
    """Does a device say on it whether it is there?"""
    return topic.endswith(_STATUS_END) and topic.count("/") == _STATUS_SLASHES


def odd_fields(content_type: str | None, value: bytes) -> Sequence[str]:
    """The fields that have texts of odd values beside them in a record of an agent's frame."""
    if _ODD_MARK not in value:
        return ()
    if not (content_type or "").startswith(_OUR_TYPES):
        return ()  # a plain device keeps no types
    return [name.decode() for name in _ODD_FIELD.findall(value)]


def record_of(
    message: Envelope | Unreadable,
    catalogue: Catalogue,
    *,
    received_at: int,
    compiled: CompiledStreams | None = None,
    gateway: str = "",
) -> KafkaRecord:
    """Check a message and make its record; `gateway`: see `admit`.

    Raises Rejected, NotNow or AwaitsCatalogueError.
    """
    if isinstance(message, Unreadable):
        reason = RejectReason.OVERSIZE if message.size > PACKET_BYTES_MAX else RejectReason.ENCODING
        raise Rejected(
            reason,
            f"publish of {message.size} bytes: {message.why}; {len(message.head)} of them are kept",
        )
    if is_status(message.topic):
        status = admit_status(message, received_at=received_at)
        if status.fields is not None:
            catalogue.learn_fields(status.device, status.fields)
            status = replace(status, fields=None)
        return KafkaRecord(
            topics.DEVICES, f"{status.device}|status", status.to_json(), [], received_at
        )
    admitted = admit(
        message, catalogue, received_at=received_at, compiled=compiled, gateway=gateway
    )
    return KafkaRecord(
        topics.UP,
        admitted.device,
        admitted.value,
        [(PLACEMENT_HEADER, admitted.placement)],
        received_at,
        admitted.aside,
    )


def dead_letter(
    message: Envelope | Unreadable,
    refusal: Rejected,
    *,
    part: str,
    received_at: int,
    bytes_max: int | None = None,
) -> KafkaRecord:
    """The record that keeps a refused message byte for byte, or its first `bytes_max` bytes."""
    if isinstance(message, Unreadable):
        value, content_type, size = message.head, "", message.size
    else:
        value, content_type, size = (
            message.payload,
            message.content_type or "",
            len(message.payload),
        )
    kept = value if bytes_max is None else value[:bytes_max]
    letter = DeadLetter(
        reason=refusal.reason,
        detail=refusal.detail,
        topic=message.topic,
        part=part,
        received_at=received_at,
        content_type=content_type,
        size=0 if len(kept) == size else size,
    )
    of_thing = thing_in(message.topic)
    is_things = of_thing is not None and refusal.reason is not RejectReason.FOREIGN_DEVICE
    key = of_thing.device if of_thing is not None and is_things else device_in(message.topic)
    return KafkaRecord(topics.DEAD, key, kept, letter.headers(), received_at)


def aside_letter(
    aside: Aside, topic: str, *, part: str, received_at: int, bytes_max: int | None
) -> KafkaRecord:
    """The record that keeps a reading that was set aside, as a plain device would have sent it."""
    refusal = Rejected(RejectReason.FIELD_TYPE, aside.detail)
    return dead_letter(
        Message(topic, aside.payload),
        refusal,
        part=part,
        received_at=received_at,
        bytes_max=bytes_max,
    )


def catalogue_row(stream: Stream, received_at: int) -> KafkaRecord:
    """The record that proposes or repeats a stream's row of the catalogue."""
    return KafkaRecord(
        topics.STREAMS, stream.name, stream.model_dump_json().encode(), [], received_at
    )


def left_out_letter(left_out: LeftOut, *, part: str, received_at: int) -> KafkaRecord:
    """The record that says how many dead letters of a device were counted and not kept."""
    letter = DeadLetter(
        reason=RejectReason.QUOTA,
        detail=(
            f"{left_out.messages} messages of {left_out.bytes} bytes were refused and only "
            f"counted: device {left_out.device!r} has more dead letters than it may have"
        ),
        topic=topics.up(left_out.device, "+"),
        part=part,
        received_at=received_at,
        size=left_out.bytes,
    )
    return KafkaRecord(topics.DEAD, left_out.device, b"", letter.headers(), received_at)


def too_large(record: KafkaRecord, detail: str, *, part: str) -> KafkaRecord | None:
    """The dead letter for a record that Kafka refuses by its size.

    None where the record is a dead letter already and cut to its smallest.
    """
    if record.topic == topics.DEAD:
        value = record.value or b""
        return (
            record._replace(value=value[:TRUNCATED_BYTES]) if len(value) > TRUNCATED_BYTES else None
        )
    letter = DeadLetter(
        reason=RejectReason.OVERSIZE,
        detail=detail,
        topic=f"{record.topic} {record.key}",
        part=part,
        received_at=record.timestamp,
    )
    return record._replace(topic=topics.DEAD, headers=letter.headers())


def is_answerable(message: Envelope | Unreadable) -> bool:
    """May the device of a refused message be answered where it asks?"""
    device = device_in(message.topic)
    return (
        bool(device)
        and message.response_topic is not None
        and can_answer(message.response_topic, message.correlation_data, device)
    )
