"""Expands a compact message to the full form that all later code expects. Pure.

* `ew/2` as content type: an agent's compact message (`edgewake.protocol.frames.compact`).
* `ew/v1/<device>/up/<stream>/ack`: a message of a device that cannot name a response topic (MQTT
  3.1.1); it is answered on `ew/v1/<device>/acks` as `<stream>|<seq>`.
"""

from __future__ import annotations

from typing import Final

import mqtt5
import orjson

from edgewake.cloud.bridge.admission.admit import parse_up
from edgewake.protocol import topics
from edgewake.protocol.errors import Rejected
from edgewake.protocol.frames import compact
from edgewake.protocol.frames.compact import COMPACT_TYPE
from edgewake.protocol.mqtt import Unreadable

SEQ_BYTES_MAX: Final = 64 * 1024
"""Bytes of a message in which a number is looked for: it is parsed once more for that."""


def expand_compact(packet: mqtt5.PublishPacket | Unreadable) -> mqtt5.PublishPacket | Unreadable:
    """The packet with the properties that it leaves out; any other packet is returned as it is."""
    if isinstance(packet, Unreadable):
        return packet
    if packet.topic.endswith(topics.ASKING_SUFFIX):
        return _asking(packet)
    if packet.content_type != COMPACT_TYPE:
        return packet
    try:
        topic, said = parse_up(packet.topic), compact.decode(packet.payload)
    except Rejected:
        return packet
    return mqtt5.PublishPacket(
        packet.topic,
        said.body,
        qos=packet.qos,
        packet_id=packet.packet_id,
        duplicate=packet.duplicate,
        content_type=said.content_type,
        response_topic=topics.acks(topic.sender),
        correlation_data=compact.correlation(_name_of(topic), said.epoch, said.frame),
        user_properties=[("sent_at", str(said.sent_at))],
    )


def _asking(packet: mqtt5.PublishPacket) -> mqtt5.PublishPacket:
    topic = packet.topic.removesuffix(topics.ASKING_SUFFIX)
    try:
        named = parse_up(topic)
    except Rejected:
        return packet
    return mqtt5.PublishPacket(
        topic,
        packet.payload,
        qos=packet.qos,
        packet_id=packet.packet_id,
        duplicate=packet.duplicate,
        content_type=packet.content_type,
        response_topic=topics.acks(named.sender),
        correlation_data=f"{_name_of(named)}|{_seq_of(packet.payload)}".encode(),
        user_properties=packet.user_properties,
    )


def _name_of(topic: topics.UpTopic) -> str:
    """What its sender calls the stream."""
    return topics.of_thing(topic.stream, topic.device) if topic.via else topic.stream


def _seq_of(payload: bytes) -> str:
    """The number in a plain message, or in the last one of several readings.

    Empty without one: then the answer names the stream alone.
    """
    if len(payload) > SEQ_BYTES_MAX:
        return ""
    try:
        found = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return ""
    if isinstance(found, list) and found:
        found = found[-1]
    seq = found.get("seq") if isinstance(found, dict) else None
    return str(seq) if type(seq) is int else ""
