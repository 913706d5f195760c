"""A way between two parts that can be cut: it passes bytes on, or for a while nothing at all.

A cut link keeps its connections and takes new ones, but no byte gets through; when the cut is over
they all break, and what was under way is gone. So both ends first believe in a connection that is
dead, and then lose it: the worst that a network does.
"""

from __future__ import annotations

import asyncio
from typing import Final

PIECE_BYTES: Final = 64 * 1024
CONNECTIONS_MAX: Final = 256
"""Connections through one link; the demonstration has some thirty. More are closed at once."""


class Link:
    """From a port of the loopback to another one."""

    def __init__(self, name: str, text: str, *, port: int, to_port: int) -> None:
        self.name = name
        self.text = text
        self.is_cut = False
        self._port = port
        self._to_port = to_port
        self._open: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._whole = asyncio.Event()
        self._whole.set()
        self._is_over = False

    async def serve(self) -> None:
        """Pass on until cancelled."""
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", self._port)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            self._is_over = True
            self._whole.set()
            self._break_all()
            if self._passing:
                await asyncio.wait(self._passing)

    async def cut(self, seconds: float) -> None:
        """Let nothing through for so long, then break every connection."""
        self.is_cut = True
        self._whole.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._break_all()
            self.is_cut = False
            self._whole.set()

    def _break_all(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= 2 * CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        other: asyncio.StreamWriter | None = None
        try:
            await self._whole.wait()
            if self._is_over or writer.transport.is_closing():
                return
            other_reader, other = await asyncio.open_connection("127.0.0.1", self._to_port)
            self._open.add(other)
            ways = [
                asyncio.create_task(self._pump(reader, other), name=f"{self.name} there"),
                asyncio.create_task(self._pump(other_reader, writer), name=f"{self.name} back"),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # nobody is there: whoever connected sees it in the end of its connection
        finally:
            for one in (writer, other):
                if one is not None:
                    self._open.discard(one)
                    one.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends; bytes that came while the link was cut go nowhere."""
        while data := await reader.read(PIECE_BYTES):
            await self._whole.wait()
            if writer.transport.is_closing():
                return
            writer.write(data)
            await writer.drain()
