"""A TCP proxy with the speed of a bad link: one way carries so many bytes a second, and holds next
to nothing on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

PIECE_BYTES = 400
RECEIVE_BYTES = 4096


@dataclass
class ThrottlingProxy:
    """Listens on `port`."""

    target: int
    bytes_per_s: float
    port: int = 0
    connections: int = 0
    carried: int = 0
    """Bytes that went to the target."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        answers, upstream = await asyncio.open_connection("127.0.0.1", self.target)
        back = asyncio.create_task(copy(answers, writer))
        loop = asyncio.get_running_loop()
        free_s = loop.time()
        try:
            with contextlib.suppress(ConnectionError):
                while piece := await reader.read(PIECE_BYTES):
                    free_s = max(free_s, loop.time()) + len(piece) / self.bytes_per_s
                    await asyncio.sleep(free_s - loop.time())
                    upstream.write(piece)
                    await upstream.drain()
                    self.carried += len(piece)
        finally:
            back.cancel()
            upstream.close()
            writer.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what comes until it ends or the connection is lost, then close."""
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def throttling_proxy(target: int, *, bytes_per_s: float) -> AsyncIterator[ThrottlingProxy]:
    """A running proxy in front of a port of the loopback."""
    proxy = ThrottlingProxy(target, bytes_per_s)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    listener.bind(("127.0.0.1", 0))
    server = await asyncio.start_server(proxy.serve, sock=listener, limit=1024)
    proxy.port = listener.getsockname()[1]
    async with server:
        yield proxy
