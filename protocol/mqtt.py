"""An MQTT 5 connection without I/O: bytes in, packets out; packets in, bytes out.

The codec is `mqtt5`; this module cuts the byte stream into packets, bounds them, and numbers packet
ids. The shells (an asyncio protocol in the agent, another in the bridge) own socket, time and
meaning. (MQTT 5.0, OASIS, sections 2.1 and 2.2.1.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import mqtt5

from edgewake.protocol import varint
from edgewake.protocol.errors import RemoteError

PACKET_BYTES_MAX: Final = 1024 * 1024 + 64 * 1024
"""The largest packet, bytes: FRAME_BYTES_MAX and its properties. A larger one is a RemoteError, and
the connection is closed."""
PROPERTIES_BYTES_MAX: Final = 8 * 1024
"""The properties of a publish, bytes: far more than ours need, and as much as servers take of HTTP
heads. Seven bytes are a property, which takes thirty times as much memory once it is read; so a
publish with more is Unreadable or a RemoteError, before any of it is read."""
LARGE_BYTES: Final = 512
"""From here on a look at a publish before it is read is cheap beside reading it, bytes."""
CONTROL_BYTES_MAX: Final = 64 * 1024
"""Any packet but a publish, bytes. A larger one is a RemoteError."""
PACKET_IDS_MAX: Final = 65_535

Packet: TypeAlias = mqtt5.Packet


UNREADABLE_BYTES_KEPT: Final = 256 * 1024
"""Bytes kept of a publish over PACKET_BYTES_MAX; the rest is skipped as it comes and never stays in
memory."""
_PUBLISH: Final = 3
_QOS: Final = 0b110
"""The bits of a publish's first byte that say its quality of service."""
_AGAIN: Final = 0b1000
"""The bit that says that a publish may have come before."""
_LENGTH_BYTES: Final = 4
"""The longest length (section 1.5.5)."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A publish that nobody read: enough of it to answer and to keep.

    It is too large, has too many properties, its sender is over its share, or the codec refuses it.
    """

    topic: str
    packet_id: int | None
    """The packet id; None for QoS 0, which needs no answer."""
    size: int
    """Bytes of the packet without its fixed header."""
    head: bytes
    """The payload's first bytes, or the packet's where the two cannot be told apart."""
    response_topic: str | None
    """None also where it was not looked for among too many properties."""
    correlation_data: bytes | None
    why: str


def _is_refusal(error: BaseException) -> bool:
    """Does the codec say that these bytes are not a packet?

    For a text that is not UTF-8 it panics, which is not an Exception.
    """
    return isinstance(error, ValueError | IndexError) or type(error).__module__ == "pyo3_runtime"


Publish: TypeAlias = mqtt5.PublishPacket | Unreadable


class PacketReader:
    """Cuts bytes into packets. Feed it what the socket gave; iterate what is complete.

    With `keep_unreadable` a publish that nobody can read is yielded as Unreadable and the
    connection goes on: a broker would send it again after every reconnection, for ever. A publish
    of which `is_left_unread` says so by its topic is yielded as Unreadable, too, if it is large or
    has many properties and did not come before: reading it costs more than all the rest.
    """

    def __init__(
        self,
        *,
        keep_unreadable: bool = False,
        is_left_unread: Callable[[str], bool] = lambda _topic: False,
    ) -> None:
        self._buffer = bytearray()
        self._keep_unreadable = keep_unreadable
        self._is_left_unread = is_left_unread
        self._skip = 0

    def feed(self, data: bytes) -> Iterator[Packet | Unreadable]:
        """Yield the packets that `data` completes; raises RemoteError on bytes that are not MQTT 5.

        Consume the iterator whole before feeding again.
        """
        buffer = self._buffer
        buffer += data
        at = min(self._skip, len(buffer))
        self._skip -= at
        try:
            with memoryview(buffer) as view:
                while (header := _fixed_header(view, at)) is not None:
                    start, length = header
                    end = start + length
                    if length > PACKET_BYTES_MAX:
                        self._check_may_skip(view[at], length)
                        if len(view) < start + UNREADABLE_BYTES_KEPT:
                            break
                        yield _unreadable(
                            view[at],
                            self._beginning(
                                view[at], bytes(view[start : start + UNREADABLE_BYTES_KEPT])
                            ),
                            length,
                            "too large",
                        )
                        at = min(end, len(view))
                        self._skip = end - at
                        continue
                    if end > len(view):
                        break
                    with view[at:end] as piece:
                        packet = self._read(piece, start - at)
                    at = end
                    yield packet
        finally:
            del buffer[:at]

    def _beginning(self, first: int, body: bytes) -> bytes:  # noqa: ARG002 for MQTT 3.1.1
        """The first bytes of a publish that is too large, as MQTT 5 writes them."""
        return body

    def _read(self, piece: memoryview, start: int) -> Packet | Unreadable:
        if len(piece) > LARGE_BYTES and (excess := self._excess(piece, start)):
            if not self._keep_unreadable or piece[0] >> 4 != _PUBLISH:
                raise RemoteError(f"MQTT packet with {excess}")
            return _unread(piece[0], bytes(piece[start:]), len(piece) - start, excess)
        try:
            return mqtt5.read(piece)[0]
        except BaseException as error:
            if not _is_refusal(error):
                raise
            if not self._keep_unreadable or piece[0] >> 4 != _PUBLISH:
                raise RemoteError(f"not MQTT 5: {error}") from error
            return _unreadable(piece[0], bytes(piece[start:]), len(piece) - start, str(error))

    def _excess(self, piece: memoryview, start: int) -> str:
        """What a packet has too much of to be read; empty: nothing."""
        first, length = piece[0], len(piece) - start
        if first >> 4 != _PUBLISH:
            if length <= CONTROL_BYTES_MAX:
                return ""
            return f"{length} bytes: expected at most {CONTROL_BYTES_MAX}"
        size = _properties_size(first, piece[start:])
        if size > PROPERTIES_BYTES_MAX:
            return f"{size} bytes of properties: expected at most {PROPERTIES_BYTES_MAX}"
        if not first & _AGAIN and self._is_left_unread(_topic(piece[start:])):
            return f"{length} bytes of a sender whose messages are only counted"
        return ""

    def _check_may_skip(self, first: int, length: int) -> None:
        if not self._keep_unreadable or first >> 4 != _PUBLISH:
            raise RemoteError(f"MQTT packet of {length} bytes: expected at most {PACKET_BYTES_MAX}")


def _topic(body: bytes | memoryview) -> str:
    """The topic of a publish (section 3.3.2.1)."""
    return bytes(body[2 : 2 + int.from_bytes(body[:2])]).decode("utf-8", "replace")


def _properties_size(first: int, body: bytes | memoryview) -> int:
    """Bytes of a publish's properties (section 3.3.2.3); 0 where that is cut."""
    at = 2 + int.from_bytes(body[:2]) + (2 if first & _QOS else 0)
    try:
        return varint.Reader(bytes(body[at : at + _LENGTH_BYTES]), 0).number()
    except IndexError:
        return 0


def _unreadable(first: int, body: bytes, size: int, why: str) -> Unreadable:
    """Read what the first bytes of a publish say (section 3.3)."""
    if _properties_size(first, body) > PROPERTIES_BYTES_MAX:
        return _unread(first, body, size, why)
    try:
        packet, _ = mqtt5.read(memoryview(bytes([first]) + varint.encode(len(body)) + body))
    except BaseException as error:
        if not _is_refusal(error):
            raise
        packet = None
    if isinstance(packet, mqtt5.PublishPacket):
        return Unreadable(
            packet.topic,
            packet.packet_id,
            size,
            packet.payload,
            packet.response_topic,
            packet.correlation_data,
            why,
        )
    return _unread(first, body, size, why)


def _unread(first: int, body: bytes, size: int, why: str) -> Unreadable:
    """What comes before the properties says who sent a publish and how it is confirmed."""
    topic_end = 2 + int.from_bytes(body[:2])
    packet_id = int.from_bytes(body[topic_end : topic_end + 2]) if first & _QOS else None
    if len(body) < topic_end + 2 or packet_id == 0:
        raise RemoteError(f"not MQTT 5: {why}")
    head = body[:UNREADABLE_BYTES_KEPT]
    return Unreadable(_topic(body), packet_id, size, head, None, None, why)


def _fixed_header(view: memoryview, at: int) -> tuple[int, int] | None:
    """Where the packet at `at` continues after its fixed header, and its remaining length.

    None while that is incomplete (section 2.1.4).
    """
    length = shift = 0
    for i in range(1, 5):
        if at + i >= len(view):
            return None
        byte = view[at + i]
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return at + i + 1, length
    raise RemoteError("MQTT packet length of more than four bytes")


class PacketIds:
    """Packet ids in use (section 2.2.1): at most `limit` at once, the server's receive maximum."""

    def __init__(self, limit: int) -> None:
        self.limit = min(limit, PACKET_IDS_MAX)
        self._last = 0
        self._used: set[int] = set()

    def __len__(self) -> int:
        return len(self._used)

    @property
    def free(self) -> int:
        """The number of packet ids that may still be allocated."""
        return self.limit - len(self._used)

    def allocate(self) -> int:
        """Reserve the next free id; ask `free` first. Raises OverflowError."""
        if self.free <= 0:
            raise OverflowError("no packet id is free")
        while True:
            self._last = self._last % PACKET_IDS_MAX + 1
            if self._last not in self._used:
                self._used.add(self._last)
                return self._last

    def release(self, packet_id: int) -> bool:
        """Free an id; False where it was not in use."""
        if packet_id not in self._used:
            return False
        self._used.discard(packet_id)
        return True
