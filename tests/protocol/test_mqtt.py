"""The MQTT stream is cut into packets wherever the socket cut it, and foreign bytes are refused."""

import contextlib

import mqtt5
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import RemoteError
from protocol.mqtt import PACKET_BYTES_MAX, PacketIds, PacketReader


def publish(payload: bytes, packet_id: int) -> bytes:
    return mqtt5.PublishPacket("ew/v1/a/up/s", payload, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=packet_id).write()


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=5), st.integers(1, 50))
def test_packets_come_out_whole_wherever_the_bytes_are_cut(payloads: list[bytes], size: int) -> None:
    data = b"".join(publish(payload, i + 1) for i, payload in enumerate(payloads))
    reader = PacketReader()
    packets = [packet for at in range(0, len(data), size) for packet in reader.feed(data[at : at + size])]
    assert [packet.payload for packet in packets] == payloads


@given(st.binary(min_size=5, max_size=100))
def test_foreign_bytes_are_refused_or_wait_for_more(data: bytes) -> None:
    with contextlib.suppress(RemoteError):
        list(PacketReader().feed(data))


def test_a_packet_over_the_bound_is_refused_before_it_is_collected() -> None:
    length = PACKET_BYTES_MAX + 1
    header = bytes([0x30, length & 0x7F | 0x80, (length >> 7) & 0x7F | 0x80, (length >> 14) & 0x7F | 0x80, length >> 21])
    with pytest.raises(RemoteError, match="at most"):
        list(PacketReader().feed(header + b"x"))


def test_packet_ids_are_bounded_unique_and_reused() -> None:
    ids = PacketIds(3)
    taken = {ids.take() for _ in range(3)}
    assert len(taken) == 3
    with pytest.raises(OverflowError):
        ids.take()
    assert ids.release(next(iter(taken)))
    assert ids.free == 1
    assert not ids.release(60_000)
