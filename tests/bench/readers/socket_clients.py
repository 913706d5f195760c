"""Many readers by WebSocket in one process of its own, with the commands of
`tests.bench.sse_clients`: `python -m tests.bench.readers.socket_clients PORT PATH CLIENTS`.

PATH is `/v1/ws#STREAM` for ours: each subscribes to the stream, gives CREDITS and gives them again
when half of them are used, so the server never has leave for more than CREDITS events ahead. Any
other path is read as it is (nchan); `/connection/websocket` is Centrifugo's, where each connects
and subscribes to the channel `one`.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from typing import Final, cast

import uvloop

from tests.bench.sse_clients import Reader, run

CREDITS: Final = 1000
OURS, CENTRIFUGO = "/v1/ws", "/connection/websocket"
_ZERO_MASK: Final = b"\0\0\0\0"
"""A client's frames are masked; with this key their bytes stay what they are."""


class SocketReader(Reader):
    """One WebSocket."""

    def __init__(self, path: str, *, is_checked: bool) -> None:
        super().__init__(path.partition("#")[0], is_checked=is_checked)
        self._stream = path.partition("#")[2]
        self._buffer = bytearray()
        self._is_upgraded = False
        self._used = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.is_open = True
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(
            f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        self.is_answered = True
        self._buffer += data
        if not self._is_upgraded and not self._upgrade():
            return
        whole = self._whole_frames()
        if whole:
            self.reads += 1
            before = self.events
            self.take(whole)
            self._used += self.events - before
            if self.path == OURS and self._used >= CREDITS // 2:
                self._say({"type": "credit", "id": "a", "credits": self._used})
                self._used = 0

    def _upgrade(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end])
        assert head.startswith(b"HTTP/1.1 101"), head
        del self._buffer[: end + 4]
        self._is_upgraded = True
        if self.path == OURS:
            words = {"type": "subscribe", "id": "a", "streams": [self._stream]}
            self._say({**words, "credits": CREDITS})
        if self.path == CENTRIFUGO:
            self._say({"id": 1, "connect": {}})
            self._say({"id": 2, "subscribe": {"channel": "one"}})
        return True

    def _say(self, words: object) -> None:
        text = json.dumps(words).encode()
        size = (
            bytes([0x80 | len(text)]) if len(text) < 126 else b"\xfe" + struct.pack(">H", len(text))
        )
        self._transport.write(b"\x81" + size + _ZERO_MASK + text)

    def _whole_frames(self) -> bytes:
        """What whole frames hold; pings are answered, which are none of ours."""
        buffer, at, parts = self._buffer, 0, []
        while len(buffer) - at >= 2:
            size, head = buffer[at + 1] & 0x7F, 2
            if size == 126:
                head = 4
                size = int.from_bytes(buffer[at + 2 : at + 4])
            elif size == 127:
                head = 10
                size = int.from_bytes(buffer[at + 2 : at + 10])
            if len(buffer) - at < head + size:
                break
            kind, body = buffer[at] & 0x0F, bytes(buffer[at + head : at + head + size])
            at += head + size
            if kind == 0x9:
                self._transport.write(b"\x8a" + bytes([0x80 | len(body)]) + _ZERO_MASK + body)
            elif body == b"{}":  # Centrifugo's own ping
                self._say({})
            elif kind in (0x0, 0x1):
                parts.append(body)
        del buffer[:at]
        return b"".join(parts)


if __name__ == "__main__":
    uvloop.run(run(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), SocketReader))
