"""A client of RFC 6455 made of bytes, so that it can break every rule."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.feeds import DEADLINE_S

TEXT, BINARY, CLOSE, PING, PONG, CONTINUATION = 1, 2, 8, 9, 10, 0
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x37\xfa\x21\x3d"


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    reserved: int = 0,
    masked: bool = True,
    declared: int | None = None,
) -> bytes:
    """A client's frame; `declared`: the length that its head claims."""
    size = len(payload) if declared is None else declared
    first = bytes(((0x80 if fin else 0) | reserved << 4 | opcode,))
    bit = 0x80 if masked else 0
    if size < 126:
        head = first + bytes((bit | size,))
    elif size < 2**16:
        head = first + bytes((bit | 126,)) + size.to_bytes(2, "big")
    else:
        head = first + bytes((bit | 127,)) + size.to_bytes(8, "big")
    if not masked:
        return head + payload
    keys = (MASK * (len(payload) // 4 + 1))[: len(payload)]
    covered = (int.from_bytes(payload, "big") ^ int.from_bytes(keys, "big")) if payload else 0
    return head + MASK + covered.to_bytes(len(payload), "big")


@dataclass
class Raw:
    """One connection after the handshake."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int
    headers: dict[str, str]

    async def send(self, data: bytes, *, chops: int = 0) -> None:
        """Write bytes; `chops`: so many at a time."""
        for at in range(0, len(data), chops or len(data) or 1):
            self.writer.write(data[at : at + (chops or len(data))])
            await self.writer.drain()
            if chops:
                await asyncio.sleep(0)

    async def next(self) -> tuple[int, bytes]:
        """(opcode, payload) of the server's next frame; raises IncompleteReadError at the end."""
        async with asyncio.timeout(DEADLINE_S):
            first, second = await self.reader.readexactly(2)
            assert first & 0x70 == 0, "no extension was agreed"
            assert second & 0x80 == 0, "a server masks nothing"
            size = second & 0x7F
            if size >= 126:
                size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
            assert first & 0x80, "ours are whole"
            return first & 0x0F, await self.reader.readexactly(size)

    async def until(self, opcode: int) -> bytes:
        """The payload of the next frame of a kind."""
        while True:
            found, payload = await self.next()
            if found == opcode:
                return payload

    async def close_code(self) -> int | None:
        """The code of the server's close frame; 0 where it has none; None: closed without."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            payload = await self.until(CLOSE)
            return int.from_bytes(payload[:2], "big")
        return None

    async def is_over(self) -> bool:
        """Does the server end the connection?"""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE_S):
                while await self.reader.read(65536):
                    pass
        return True


@asynccontextmanager
async def raw(
    port: int, path: str = "/v1/ws", *, limit: int = 2**16, **headers: str | None
) -> AsyncIterator[Raw]:
    """A connection that sent a handshake; a header that is None is left out."""
    words: dict[str, str | None] = {
        "Host": f"127.0.0.1:{port}",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    lines = [f"{name}: {value}\r\n" for name, value in words.items() if value is not None]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    writer.write(f"GET {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode())
    try:
        async with asyncio.timeout(DEADLINE_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        found = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        yield Raw(reader, writer, int(head[0].split()[1]), found)
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
