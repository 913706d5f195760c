"""Translates MQTT 3.1.1 for code that is written for MQTT 5. Pure.

A packet of a 3.1.1 broker or client is decoded as the same packet of MQTT 5 without properties, and
a packet of MQTT 5 is encoded without what 3.1.1 lacks. (MQTT 3.1.1, OASIS, sections 2 and 3.)
"""

from __future__ import annotations

from typing import Final

import mqtt5

from edgewake.protocol import varint
from edgewake.protocol.errors import RemoteError
from edgewake.protocol.mqtt import Packet, PacketReader, Unreadable

NO_5: Final = b"\x20\x02\x00\x01"
"""CONNACK of a broker without MQTT 5 (section 3.2.2.3: unacceptable protocol version)."""
_LEVEL, _LEVEL_5 = 4, 5
_NAMES: Final = (b"\0\4MQTT", b"\0\6MQIsdp")
"""How a CONNECT begins; the second form is that of MQTT 3.1."""
_CONNECT, _CONNACK, _PUBLISH, _SUBSCRIBE, _SUBACK, _UNSUBSCRIBE, _UNSUBACK = 1, 2, 3, 8, 9, 10, 11
_HAS_WILL: Final = 1 << 2
_REFUSALS: Final = {0: 0x00, 1: 0x84, 2: 0x85, 3: 0x88, 4: 0x86, 5: 0x87}
"""Return code of CONNACK → reason code of MQTT 5."""
_CODES: Final = {reason: code for code, reason in _REFUSALS.items()}
_NOT_AUTHORIZED: Final = 5
_UNSPECIFIED: Final = 0x80
_NO_PROPERTIES: Final = b"\0"


def encode(packet: Packet) -> bytes:
    """Encodes a packet. Raises TypeError for one that 3.1.1 lacks."""
    match packet:
        case mqtt5.ConnAckPacket():
            code = _CODES.get(int(packet.reason_code), _NOT_AUTHORIZED)
            return _fixed(0x20, bytes([packet.session_present, code]))
        case mqtt5.SubAckPacket():
            codes = bytes(min(int(one), _UNSPECIFIED) for one in packet.reason_codes)
            return _fixed(0x90, _number(packet.packet_id) + codes)
        case mqtt5.UnsubAckPacket():
            return _fixed(0xB0, _number(packet.packet_id))
        case mqtt5.PingRespPacket():
            return b"\xd0\0"
        case mqtt5.ConnectPacket():
            return _fixed(0x10, _connect(packet))
        case mqtt5.PublishPacket():
            flags = packet.duplicate << 3 | int(packet.qos) << 1 | packet.retain
            number = b"" if packet.packet_id is None else _number(packet.packet_id)
            return _fixed(0x30 | flags, _text(packet.topic) + number + packet.payload)
        case mqtt5.SubscribePacket():
            wanted = [
                _text(one.pattern) + bytes([int(one.max_qos)]) for one in packet.topic_filters
            ]
            return _fixed(0x82, _number(packet.packet_id) + b"".join(wanted))
        case mqtt5.UnsubscribePacket():
            patterns = b"".join(map(_text, packet.patterns))
            return _fixed(0xA2, _number(packet.packet_id) + patterns)
        case mqtt5.PubAckPacket():
            return _fixed(0x40, _number(packet.packet_id))
        case mqtt5.PingReqPacket():
            return b"\xc0\0"
        case mqtt5.DisconnectPacket():
            return b"\xe0\0"
        case _:
            raise TypeError(f"MQTT 3.1.1 has no {type(packet).__name__}")


def _connect(packet: mqtt5.ConnectPacket) -> bytes:
    flags, rest = packet.clean_start << 1, _text(packet.client_id)
    if packet.will is not None:
        will = packet.will
        flags |= 1 << 2 | int(will.qos) << 3 | will.retain << 5
        rest += _text(will.topic) + _bytes(will.payload or b"")
    if packet.username is not None:
        flags |= 1 << 7
        rest += _text(packet.username)
    if packet.password is not None:
        flags |= 1 << 6
        rest += _bytes(packet.password)
    return _text("MQTT") + bytes([_LEVEL, flags]) + _number(packet.keep_alive) + rest


def _number(value: int) -> bytes:
    return value.to_bytes(2)


def _bytes(value: bytes) -> bytes:
    return _number(len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


def _fixed(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint.encode(len(body)) + body


def level_of(beginning: bytes) -> int | None:
    """Returns the protocol level in a client's first packet; None while it is incomplete.

    Raises RemoteError where that is not a CONNECT.
    """
    if beginning and beginning[0] >> 4 != _CONNECT:
        raise RemoteError("expected CONNECT first")
    at = next((n + 1 for n, byte in enumerate(beginning[1:5], 1) if byte < 0x80), None)
    if at is None:
        return None
    for name in _NAMES:
        if beginning[at : at + len(name)] == name:
            rest = beginning[at + len(name) :]
            return rest[0] if rest else None
        if name.startswith(beginning[at:]):
            return None
    raise RemoteError("no MQTT")


def as_mqtt5(first: int, body: bytes) -> bytes:
    """Converts the body of a packet to MQTT 5; one that is too short stays as it is."""
    kind = first >> 4
    if kind == _CONNECT:
        return _connect_as_mqtt5(body)
    if kind in (_SUBSCRIBE, _UNSUBSCRIBE):
        return body[:2] + _NO_PROPERTIES + body[2:]
    if kind == _CONNACK and len(body) == 2:
        # A refusal never has the session flag (section 3.2.2.2).
        return bytes([body[0], _REFUSALS.get(body[1], _UNSPECIFIED)]) + _NO_PROPERTIES
    if kind == _PUBLISH:
        at = 2 + int.from_bytes(body[:2]) + (2 if first & 0b110 else 0)
        return body[:at] + _NO_PROPERTIES + body[at:] if len(body) >= at else body
    if kind == _SUBACK:
        return body[:2] + _NO_PROPERTIES + body[2:]
    if kind == _UNSUBACK:
        return body[:2] + _NO_PROPERTIES + b"\0"
    return body


def _connect_as_mqtt5(body: bytes) -> bytes:
    at = 2 + int.from_bytes(body[:2])
    head, rest = body[at : at + 4], body[at + 4 :]
    if len(head) < 4:
        return body
    level, flags = head[0], head[1]
    if level not in (3, _LEVEL):
        return body
    if flags & _HAS_WILL:
        client = 2 + int.from_bytes(rest[:2])
        rest = rest[:client] + _NO_PROPERTIES + rest[client:]
    return _text("MQTT") + bytes([_LEVEL_5]) + head[1:] + _NO_PROPERTIES + rest


class OldPacketReader(PacketReader):
    """Decodes the packets of a 3.1.1 broker or client."""

    def _read(self, piece: memoryview, start: int) -> Packet | Unreadable:
        body = as_mqtt5(piece[0], bytes(piece[start:]))
        head = piece[:1].tobytes() + varint.encode(len(body))
        with memoryview(head + body) as whole:
            return super()._read(whole, len(head))

    def _beginning(self, first: int, body: bytes) -> bytes:
        return as_mqtt5(first, body)
