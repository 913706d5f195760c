"""Packets of MQTT 3.1.1."""

from __future__ import annotations

import mqtt5

from edgewake.protocol.mqtt import PACKET_BYTES_MAX, Unreadable
from edgewake.protocol.packets.mqtt311 import OldPacketReader, encode


def test_packets_of_a_3_1_1_server_are_read_in_whatever_pieces_they_come() -> None:
    said = (
        b"\x20\x02\x01\x00" + b"\x90\x03\x00\x01\x01" + b"\xb0\x02\x00\x02"
        + b"\x32\x09\x00\x03a/b\x00\x07hi" + b"\xd0\x00" + b"\x31\x05\x00\x03a/b"
    )  # fmt: skip
    whole = list(OldPacketReader().feed(said))
    reader = OldPacketReader()
    assert [str(one) for byte in said for one in reader.feed(bytes([byte]))] == list(
        map(str, whole)
    )
    kinds = [type(one).__name__.removesuffix("Packet") for one in whole]
    assert kinds == ["ConnAck", "SubAck", "UnsubAck", "Publish", "PingResp", "Publish"]
    first, last = whole[3], whole[5]
    assert isinstance(first, mqtt5.PublishPacket)
    assert isinstance(last, mqtt5.PublishPacket)
    assert (first.topic, first.packet_id, first.payload) == ("a/b", 7, b"hi")
    assert (last.topic, last.packet_id, last.payload, last.retain) == ("a/b", None, b"", True)


def test_a_message_past_the_bound_is_told_with_its_topic_and_packet_id() -> None:
    size = PACKET_BYTES_MAX + 1
    packet = mqtt5.PublishPacket("a/b", b" " * size, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=7)
    (found,) = OldPacketReader(keep_unreadable=True).feed(encode(packet))
    assert isinstance(found, Unreadable)
    assert (found.topic, found.packet_id, found.head[:3]) == ("a/b", 7, b"   ")
