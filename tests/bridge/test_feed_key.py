"""A bridge shows the access servers its own key, and reads it again when it changes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import orjson

from edgewake.cloud.bridge.feeds import FeedConfig, Feeds
from edgewake.protocol.downlink.feed import FeedChunk
from tests.services import PATIENCE_S

ASK = orjson.dumps({"feed": "weather", "streams": ["city"], "after": "v2.c0"})
EVENT = b'id: c1\nevent: checkpoint\ndata: {"cursor":"c1"}\n\n'
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


async def test_its_key_goes_along(tmp_path: Path) -> None:
    asked: list[bytes] = []
    chunks: asyncio.Queue[FeedChunk] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK + EVENT)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    key = tmp_path / "bridge.key"

    async def ask(key_file: Path | None) -> FeedChunk:
        config = FeedConfig(access_urls=(url,), streams=("city",), key_file=key_file)
        feeds = Feeds(config, lambda _, chunk: chunks.put_nowait(chunk), random.Random(1))
        try:
            feeds.on_ask("car-7", ASK)
            async with asyncio.timeout(PATIENCE_S):
                return await chunks.get()
        finally:
            await feeds.close()

    try:
        for text, header in (("first-key\n", b"Bearer first-key"), ("next", b"Bearer next")):
            key.write_text(text)
            assert (await ask(key)).cursor == "c1"
            assert b"authorization: " + header + b"\r\n" in asked[-1].replace(b"Auth", b"auth")
        assert (await ask(None)).cursor == "c1"
        assert b"authorization" not in asked[-1].lower()
        count = len(asked)
        refused = await ask(tmp_path / "missing")
        assert refused.error is not None
        assert "key" in refused.error
        assert str(tmp_path) not in refused.error
        assert len(asked) == count
    finally:
        server.close()
        await server.wait_closed()
