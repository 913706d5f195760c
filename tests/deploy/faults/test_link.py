"""A link passes everything on; cut, it lets nothing through, and breaks what goes through it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from edgewake.deploy.faults.link import Link
from tests.services import PATIENCE_S, free_ports


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data.upper())
        await writer.drain()
    writer.write(b"BYE")
    writer.close()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Link, int]]:
    """A link to a server that answers in capitals, and the port by which one comes in."""
    port, behind = free_ports(2)
    link = Link("devices", "a to b", port=port, to_port=behind)
    server = await asyncio.start_server(_echo, "127.0.0.1", behind)
    serving = asyncio.create_task(link.serve())
    async with asyncio.timeout(PATIENCE_S):
        yield link, port
    serving.cancel()
    await asyncio.wait([serving])
    server.close()


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)


async def _asked(port: int) -> bytes:
    reader, writer = await _connect(port)
    try:
        writer.write(b"word")
        return await reader.readexactly(4)
    finally:
        writer.close()


async def test_all_goes_through_also_the_last_word() -> None:
    async with linked() as (_, port):
        reader, writer = await _connect(port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"ONE"
        writer.close()
        assert await _asked(port) == b"WORD"


async def test_a_cut_link_is_silent_then_breaks_and_then_is_whole_again() -> None:
    async with linked() as (link, port):
        reader, writer = await _connect(port)
        writer.write(b"before")
        assert await reader.readexactly(6) == b"BEFORE"
        cut = asyncio.create_task(link.cut(1.0))
        while not link.is_cut:
            await asyncio.sleep(0.01)
        writer.write(b"lost")
        new = asyncio.create_task(_asked(port))
        assert link.is_cut
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(4)
        await cut
        assert not link.is_cut
        await asyncio.gather(new, return_exceptions=True)
        assert await _asked(port) == b"WORD"
        writer.close()


async def test_nobody_behind_it_is_the_end_of_the_connection() -> None:
    port, behind = free_ports(2)
    link = Link("devices", "a to b", port=port, to_port=behind)
    serving = asyncio.create_task(link.serve())
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await _connect(port)
        assert await reader.read() == b""
        writer.close()
    serving.cancel()
    await asyncio.wait([serving])
