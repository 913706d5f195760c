"""A TCP proxy that cuts answers in two: where a given text comes by, whatever the pieces it comes
in.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER with 0 s: close() sends RST."""


@dataclass
class CuttingProxy:
    """Listens on `port`.

    Each connection is cut right after the next text of `cuts`, by RST and FIN in turn; after the
    last none is.
    """

    target: int
    cuts: Sequence[bytes]
    port: int = 0
    made: int = 0
    """Cuts made."""
    began: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the first blank line of an answer's body was passed on."""
    flows: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared: nothing is passed on, and no connection ends, as where a machine or a router is
    gone."""
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.flows.set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection came."""
        connection = asyncio.create_task(self.serve(reader, writer))
        self.connections.add(connection)
        connection.add_done_callback(self.connections.discard)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        try:
            answers, upstream = await asyncio.open_connection("127.0.0.1", self.target)
        except BaseException:
            writer.close()
            raise
        asking = asyncio.create_task(_copy(reader, upstream))
        seen = b""
        try:
            with contextlib.suppress(ConnectionError):
                while piece := await answers.read(65_536):
                    await self.flows.wait()
                    at = self._where_to_cut(seen, piece)
                    writer.write(piece if at is None else piece[:at])
                    await writer.drain()
                    if at is not None:
                        self._cut(writer)
                        return
                    seen = (seen + piece)[-4096:]
                    if b"\r\n\r\n" in seen and b"\n\n" in seen.partition(b"\r\n\r\n")[2]:
                        self.began.set()
        finally:
            asking.cancel()
            upstream.close()
            writer.close()

    def _where_to_cut(self, seen: bytes, piece: bytes) -> int | None:
        if self.made == len(self.cuts):
            return None
        mark = self.cuts[self.made]
        found = (seen + piece).find(mark, max(0, len(seen) - len(mark) + 1))
        return None if found < 0 else found + len(mark) - len(seen)

    def _cut(self, writer: asyncio.StreamWriter) -> None:
        if self.made % 2 == 0:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.made += 1


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()


@asynccontextmanager
async def cutting_proxy(target: int, cuts: Sequence[bytes]) -> AsyncIterator[CuttingProxy]:
    """A running proxy in front of a port of the loopback."""
    proxy = CuttingProxy(target, cuts)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        async with server:
            yield proxy
    finally:
        left = list(proxy.connections)
        for connection in left:
            connection.cancel()
        await asyncio.gather(*left, return_exceptions=True)
