"""A reader that takes little is told how far it is behind, and loses nothing by it."""

from __future__ import annotations

import asyncio
import socket
import time

import orjson
import pytest

from tests.access.world import Server, open_stream
from tests.feeds import DEADLINE_S, Feed

pytestmark = pytest.mark.services

TEXT = "x" * 3000


@pytest.mark.long
async def test_a_reader_that_takes_little_is_told_how_far_it_is_behind(
    access_a: Server, feed: Feed
) -> None:
    """It was never told. All of what it was sent it has in the end, in order."""
    for first in range(0, 2000, 100):
        columns = {"n": [float(first + i) for i in range(100)], "text": [TEXT] * 100}
        feed.send(n=100, fields=columns)
    seen: list[float] = []
    told: list[dict[str, float]] = []
    began = time.monotonic()
    async with open_stream(access_a.url, feed.name, from_="earliest", limit=4096) as stream:
        sock = stream.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        async with asyncio.timeout(DEADLINE_S):
            async for event in stream.events():
                if event.type == "behind":
                    told.append(orjson.loads(event.data))
                if event.type == "message":
                    seen.append(orjson.loads(event.data)["n"])
                    if not told:
                        await asyncio.sleep(0.02)
                if len(seen) == 2000:
                    break
    assert seen == [float(n) for n in range(2000)]
    assert told[0]["records"] > 0
    assert 0 <= told[0]["seconds"] < time.monotonic() - began + 60
    assert len(told) <= 1 + (time.monotonic() - began) / 10


async def test_a_reader_that_takes_all_is_told_nothing(access_a: Server, feed: Feed) -> None:
    feed.send(n=2000)
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        assert len(await stream.take(2000)) == 2000
        feed.send(n=10)
        assert len(await stream.take(10)) == 10
        assert b"event: behind" not in stream.raw
