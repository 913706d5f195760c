"""An MQTT 5 connection without I/O: bytes in, packets out; packets in, bytes out.

The codec is `mqtt5`; this module cuts the byte stream into packets, bounds them, and numbers packet ids. The shells (an asyncio
protocol in the agent, another in the bridge) own socket, time and meaning. (MQTT 5.0, OASIS, sections 2.1 and 2.2.1.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import mqtt5

from protocol.errors import RemoteError

PACKET_BYTES_MAX: Final = 1024 * 1024 + 64 * 1024
"""Bytes of one packet: FRAME_BYTES_MAX and room for its properties. Over it: RemoteError, the connection is closed."""
PACKET_IDS_MAX: Final = 65_535

Packet: TypeAlias = mqtt5.Packet


class PacketReader:
    """Cuts bytes into packets. Feed it what the socket gave; iterate what is complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Yield the packets that `data` completes; raises RemoteError on bytes that are no MQTT 5.

        Consume the iterator whole before feeding again.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            with memoryview(buffer) as view:
                while (size := _packet_size(view, at)) is not None and at + size <= len(view):
                    with view[at : at + size] as piece:
                        packet, _ = mqtt5.read(piece)
                    at += size
                    yield packet
        except (ValueError, IndexError) as error:
            raise RemoteError(f"not MQTT 5: {error}") from error
        finally:
            del buffer[:at]


def _packet_size(view: memoryview, at: int) -> int | None:
    """Bytes of the packet at `at`, None while its length is not complete (section 2.1.4)."""
    length = shift = 0
    for i in range(1, 5):
        if at + i >= len(view):
            return None
        byte = view[at + i]
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if length > PACKET_BYTES_MAX:
                raise RemoteError(f"MQTT packet of {length} bytes: expected at most {PACKET_BYTES_MAX}")
            return 1 + i + length
    raise RemoteError("MQTT packet length takes more than four bytes")


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
        """How many may be taken now."""
        return self.limit - len(self._used)

    def take(self) -> int:
        """The next free id; the caller checks `free` first."""
        if self.free <= 0:
            raise OverflowError("no packet id is free")
        while True:
            self._last = self._last % PACKET_IDS_MAX + 1
            if self._last not in self._used:
                self._used.add(self._last)
                return self._last

    def release(self, packet_id: int) -> bool:
        """Give one back; False where it was not in use."""
        if packet_id not in self._used:
            return False
        self._used.discard(packet_id)
        return True
