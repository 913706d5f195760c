"""A compact message as the message that it stands for: what comes after it, dead letters included,
knows no other kind. Pure.
"""

from __future__ import annotations

import mqtt5

from edgewake.cloud.bridge.admit import parse_up
from edgewake.protocol import compact, topics
from edgewake.protocol.compact import COMPACT_TYPE
from edgewake.protocol.errors import Rejected
from edgewake.protocol.mqtt import Unreadable


def in_full(packet: mqtt5.PublishPacket | Unreadable) -> mqtt5.PublishPacket | Unreadable:
    """The packet with the properties that a compact message leaves out; any other as it is, one
    that nobody can read among them.
    """
    if isinstance(packet, Unreadable) or packet.content_type != COMPACT_TYPE:
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
        response_topic=topics.acks(topic.device),
        correlation_data=compact.correlation(topic.stream, said.epoch, said.frame),
        user_properties=[("sent_at", str(said.sent_at))],
    )
