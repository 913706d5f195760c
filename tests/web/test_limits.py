"""Heads and bodies that are too large or too slow, sent to a real server through a socket."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from fastapi import FastAPI, Request

from edgewake.cloud.web import http_part
from edgewake.cloud.web import limits as web_limits
from tests.services import PATIENCE_S


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """A small application behind `http_part.serve`; its port."""
    app, stop, ready = FastAPI(), asyncio.Event(), asyncio.Event()
    http_part.install(app)

    @app.post("/size")
    async def size(request: Request) -> int:
        return len(await request.body())

    listener = http_part.bind("127.0.0.1", 0)
    server = asyncio.create_task(http_part.serve(app, listener, stop=stop, on_ready=ready.set))
    await ready.wait()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        await server


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds in seconds, a tenth of what they are."""
    monkeypatch.setattr(web_limits, "HEAD_S", 1.0)
    monkeypatch.setattr(web_limits, "BODY_S", 1.0)


async def exchange(port: int, *parts: bytes) -> bytes:
    """Send parts, then read until the server closes."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.transport.abort()


def test_the_bounds_are_those_that_are_documented() -> None:
    assert (web_limits.HEAD_BYTES_MAX, web_limits.HEAD_S, web_limits.BODY_S) == (
        32 * 1024,
        10.0,
        15.0,
    )


async def test_a_head_within_its_bound_is_served() -> None:
    head = b"POST /size HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-big: " + b"a" * 30_000
    async with serving() as port:
        answer = await exchange(port, head, b"\r\ncontent-length: 5\r\n\r\n", b"12345")
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n5")


@pytest.mark.parametrize(
    "head",
    [
        b"POST /size HTTP/1.1\r\nhost: x\r\nx-big: " + b"a" * 40_000 + b"\r\n\r\n",
        b"POST /" + b"a" * 40_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"POST /size HTTP/1.1\r\n"
        + b"".join(b"x-%d: abcdefgh\r\n" % n for n in range(4000))
        + b"\r\n",
    ],
)
async def test_a_head_over_its_bound_is_refused(head: bytes) -> None:
    async with serving() as port:
        answer = await exchange(port, head)
    assert answer.startswith(b"HTTP/1.1 431")
    assert b"at most 32768 bytes" in answer


async def test_a_header_without_an_end_is_cut_off_and_takes_no_memory() -> None:
    async with serving() as port:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        sent = await _send_header_without_end(port, bytes_max=30 * 2**20)
        assert sent < 8 * 2**20  # what the sockets' buffers take
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024
        assert (
            await exchange(port, b"POST /size HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        ).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("short_waits")
async def test_heads_that_are_half_sent_are_closed() -> None:
    async with serving() as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(50)]
        for number, (_, writer) in enumerate(opened):
            writer.write(b"" if number % 2 else b"GET /size HTTP/1.1\r\nhost: x\r\nx-a: ")
        async with asyncio.timeout(PATIENCE_S):
            for reader, writer in opened:
                assert await _ended(reader)
                writer.transport.abort()


@pytest.mark.usefixtures("short_waits")
async def test_a_head_that_dribbles_is_closed_however_often_a_byte_comes() -> None:
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /size HTTP/1.1\r\nhost: x\r\nx-a: ")
        ended = asyncio.create_task(_ended(reader))
        async with asyncio.timeout(PATIENCE_S):
            while not ended.done():
                writer.write(b"a")
                await asyncio.sleep(0.02)
        writer.transport.abort()
        assert await ended


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize(
    "head", [b"content-length: 100\r\n\r\n", b"transfer-encoding: chunked\r\n\r\n64\r\n"]
)
async def test_a_body_that_dribbles_is_closed(head: bytes) -> None:
    async with serving() as port:
        assert await exchange(port, b"POST /size HTTP/1.1\r\nhost: x\r\n" + head, b"12345") == b""


@pytest.mark.usefixtures("short_waits")
async def test_a_connection_that_is_used_again_starts_each_bound_anew() -> None:
    request = (
        b"POST /size HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\nx-big: "
        + b"a" * 20_000
        + b"\r\n\r\n12345"
    )
    async with serving() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(4):
                writer.write(request)
                assert (await reader.readline()).startswith(b"HTTP/1.1 200")
                while await reader.readline() != b"\r\n":
                    pass
                assert await reader.readexactly(1) == b"5"
                await asyncio.sleep(0.4)
        writer.transport.abort()


async def _send_header_without_end(port: int, *, bytes_max: int) -> int:
    """Bytes that could be sent before the server hung up."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /size HTTP/1.1\r\nhost: x\r\nx-big: ")
    sent = 0
    try:
        while sent < bytes_max:
            writer.write(b"a" * 65_536)
            await writer.drain()
            sent += 65_536
            await asyncio.sleep(0)
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()
    return sent


async def _ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True
