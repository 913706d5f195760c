"""The MQTT stream is cut into packets wherever the socket cut it, and foreign bytes are refused."""

import contextlib

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgewake.protocol import varint
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.mqtt import (
    CONTROL_BYTES_MAX,
    LARGE_BYTES,
    PACKET_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    UNREADABLE_BYTES_KEPT,
    PacketIds,
    PacketReader,
    Unreadable,
)


def publish(payload: bytes, packet_id: int) -> bytes:
    return mqtt5.PublishPacket(
        "ew/v1/a/up/s", payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=packet_id
    ).write()


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=5), st.integers(1, 50))
def test_packets_come_out_whole_wherever_the_bytes_are_cut(
    payloads: list[bytes], size: int
) -> None:
    data = b"".join(publish(payload, i + 1) for i, payload in enumerate(payloads))
    reader = PacketReader()
    packets = [
        packet for at in range(0, len(data), size) for packet in reader.feed(data[at : at + size])
    ]
    assert [packet.payload for packet in packets] == payloads


@given(st.binary(min_size=5, max_size=100))
def test_foreign_bytes_are_refused_or_wait_for_more(data: bytes) -> None:
    with contextlib.suppress(RemoteError):
        list(PacketReader().feed(data))


def test_a_packet_over_the_bound_is_refused_before_it_is_collected() -> None:
    length = PACKET_BYTES_MAX + 1
    header = bytes(
        [
            0x30,
            length & 0x7F | 0x80,
            (length >> 7) & 0x7F | 0x80,
            (length >> 14) & 0x7F | 0x80,
            length >> 21,
        ]
    )
    with pytest.raises(RemoteError, match="at most"):
        list(PacketReader().feed(header + b"x"))


def test_packet_ids_are_bounded_unique_and_reused() -> None:
    ids = PacketIds(3)
    taken = {ids.allocate() for _ in range(3)}
    assert len(taken) == 3
    with pytest.raises(OverflowError):
        ids.allocate()
    assert ids.release(next(iter(taken)))
    assert ids.free == 1
    assert not ids.release(60_000)


def test_a_publish_over_the_bound_is_skipped_with_its_head_kept() -> None:
    """Only its first bytes are held, and the packets around it come out."""
    large = publish(b"x" * (3 * PACKET_BYTES_MAX), 2)
    data = publish(b"before", 1) + large + publish(b"after", 3)
    reader = PacketReader(keep_unreadable=True)
    before, skipped, after = [
        packet
        for at in range(0, len(data), 65_536)
        for packet in reader.feed(data[at : at + 65_536])
    ]
    assert isinstance(skipped, Unreadable)
    assert (skipped.topic, skipped.packet_id, skipped.size) == ("ew/v1/a/up/s", 2, len(large) - 5)
    assert UNREADABLE_BYTES_KEPT - 100 < len(skipped.head) < UNREADABLE_BYTES_KEPT
    assert [packet.payload for packet in (before, after)] == [b"before", b"after"]


def test_a_publish_that_the_codec_refuses_is_told_from_its_head() -> None:
    body = b"\x00\x03a/b" + b"\x00\x07" + b"\x01\xff" + b"rest"
    reader = PacketReader(keep_unreadable=True)
    first, second = reader.feed(bytes([0x32, len(body)]) + body + publish(b"after", 1))
    assert isinstance(first, Unreadable)
    assert (first.topic, first.packet_id) == ("a/b", 7)
    assert second.payload == b"after"
    with pytest.raises(RemoteError):
        list(PacketReader().feed(bytes([0x32, len(body)]) + body))


def with_properties(size: int, packet_id: int | None, payload: bytes = b"x") -> bytes:
    """A publish with so many bytes of properties."""
    name_and_lengths = 6
    return mqtt5.PublishPacket(
        "ew/v1/a/up/s",
        payload,
        qos=mqtt5.QoS.AT_LEAST_ONCE if packet_id else mqtt5.QoS.AT_MOST_ONCE,
        packet_id=packet_id,
        user_properties=[("a", "v" * (size - name_and_lengths))],
    ).write()


@pytest.mark.parametrize("packet_id", [None, 7])
def test_properties_are_read_up_to_their_bound_and_not_beyond(packet_id: int | None) -> None:
    most, more = (
        with_properties(PROPERTIES_BYTES_MAX + beyond, packet_id, b"p" * 300_000)
        for beyond in (0, 1)
    )
    reader = PacketReader(keep_unreadable=True)
    read, unread, after = reader.feed(most + more + publish(b"after", 1))
    assert isinstance(read, mqtt5.PublishPacket)
    assert isinstance(unread, Unreadable)
    assert (unread.topic, unread.packet_id) == (read.topic, packet_id)
    assert len(unread.head) == UNREADABLE_BYTES_KEPT
    assert f"{PROPERTIES_BYTES_MAX + 1} bytes of properties" in unread.why
    assert after.payload == b"after"
    with pytest.raises(RemoteError, match="bytes of properties"):
        list(PacketReader().feed(more))


def test_a_publish_over_the_bound_that_is_nothing_but_properties_is_not_read_either() -> None:
    topic = b"ew/v1/a/up/s"
    size = PACKET_BYTES_MAX + 1
    begin = len(topic).to_bytes(2) + topic + (2).to_bytes(2) + varint.encode(size)
    body = begin + b"\x26\0\1a\0\1b" * (size // 7)
    (unread,) = PacketReader(keep_unreadable=True).feed(b"\x32" + varint.encode(len(body)) + body)
    assert isinstance(unread, Unreadable)
    assert (unread.topic, unread.packet_id) == ("ew/v1/a/up/s", 2)


def test_what_is_only_counted_is_left_unread_where_it_is_large_and_new() -> None:
    asked: list[str] = []

    def is_left(topic: str) -> bool:
        asked.append(topic)
        return topic == "ew/v1/a/up/s"

    reader = PacketReader(keep_unreadable=True, is_left_unread=is_left)
    small, large = publish(b"x", 1), publish(b"x" * LARGE_BYTES, 2)
    again = bytes([large[0] | 0b1000]) + large[1:]
    other = mqtt5.PublishPacket("ew/v1/b/up/s", b"x" * LARGE_BYTES).write()
    found = list(reader.feed(small + large + again + other))
    kinds = [mqtt5.PublishPacket, Unreadable, mqtt5.PublishPacket, mqtt5.PublishPacket]
    assert list(map(type, found)) == kinds
    assert (found[1].topic, found[1].packet_id, found[1].size) == (
        "ew/v1/a/up/s",
        2,
        len(large) - 3,
    )
    assert asked == ["ew/v1/a/up/s", "ew/v1/b/up/s"]


def test_a_packet_that_is_no_publish_is_small() -> None:
    filters = [mqtt5.TopicFilter("a" * 200) for _ in range(CONTROL_BYTES_MAX // 203)]
    (read,) = PacketReader().feed(mqtt5.SubscribePacket(1, filters).write())
    assert isinstance(read, mqtt5.SubscribePacket)
    for reader in (PacketReader(), PacketReader(keep_unreadable=True)):
        with pytest.raises(RemoteError, match="expected at most"):
            list(reader.feed(mqtt5.SubscribePacket(1, [*filters, *filters[:2]]).write()))


ASKED = {"qos": mqtt5.QoS.AT_LEAST_ONCE, "packet_id": 1}
WITH_TEXT: dict[str, mqtt5.Packet] = {
    "topic": mqtt5.PublishPacket("QQQQ", b"x", **ASKED),  # type: ignore[arg-type]
    "content type": mqtt5.PublishPacket("a", b"x", content_type="QQQQ", **ASKED),  # type: ignore[arg-type]
    "name": mqtt5.PublishPacket("a", b"x", user_properties=[("QQQQ", "v")], **ASKED),  # type: ignore[arg-type]
    "value": mqtt5.PublishPacket("a", b"x", user_properties=[("v", "QQQQ")], **ASKED),  # type: ignore[arg-type]
    "reason": mqtt5.DisconnectPacket(reason_str="QQQQ"),
    "client id": mqtt5.ConnAckPacket(assigned_client_id="QQQQ"),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("what", WITH_TEXT)
def test_a_text_that_is_not_utf_8_is_refused_as_any_other_bytes(what: str) -> None:
    """The codec panics over it: no Exception, so whoever catches those only would end."""
    data = WITH_TEXT[what].write().replace(b"QQQQ", b"\xff\xfe\xf6\x80")
    with pytest.raises(RemoteError):
        list(PacketReader().feed(data))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("what", ["content type", "name", "value"])
def test_a_publish_with_such_a_text_is_passed_over_where_others_are_to_go_on(what: str) -> None:
    data = WITH_TEXT[what].write().replace(b"QQQQ", b"\xff\xfe\xf6\x80")
    bad, good = PacketReader(keep_unreadable=True).feed(data + publish(b"next", 2))
    assert isinstance(bad, Unreadable)
    assert (bad.topic, bad.packet_id) == ("a", 1)
    assert isinstance(good, mqtt5.PublishPacket)
    assert good.payload == b"next"
