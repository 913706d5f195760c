"""Behind a proxy that compresses all it can: the first bytes come at once, and each event as it is.

The proxies are nginx with `gzip` for every type, buffering as it is by default, and `compression`,
which Express servers use.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.responses import Response

from edgewake.cloud.ops.tables.event_ring import EventRing
from tests.access.test_nginx import front, nginx
from tests.access.test_readers import JS
from tests.access.world import Server
from tests.feeds import DEADLINE_S, Feed
from tests.services import PATIENCE_S

__all__ = ["front"]
pytestmark = pytest.mark.services

GZIP = (
    ("gzip off;", "gzip on; gzip_types *; gzip_min_length 0; gzip_proxied any;"),
    ("proxy_buffering off;", ""),
)
SILENT_S = 2.0
"""How long the control hears nothing."""


@asynccontextmanager
async def express(port: int, *words: str) -> AsyncIterator[str]:
    """The address of a proxy that uses `compression`."""
    proxy = await asyncio.create_subprocess_exec(
        "node",
        str(JS / "compressing.mjs"),
        f"http://127.0.0.1:{port}",
        *words,
        stdout=subprocess.PIPE,
        cwd=JS,
    )
    assert proxy.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield f"http://127.0.0.1:{int(await proxy.stdout.readline())}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            proxy.kill()
        await proxy.wait()


@asynccontextmanager
async def behind(kind: str, port: int, front: Path, folder: Path) -> AsyncIterator[str]:
    """The address of a proxy in front of an access server."""
    if kind == "express":
        async with express(port) as base:
            yield base
        return
    async with nginx(folder, front, [port], GZIP) as proxy:
        yield f"http://127.0.0.1:{proxy.port}"


async def next_line(lines: AsyncIterator[str], begins: str, *, within_s: float = DEADLINE_S) -> str:
    async with asyncio.timeout(within_s):
        async for line in lines:
            if line.startswith(begins):
                return line
    raise AssertionError(f"it ended before {begins}")


@pytest.mark.parametrize("method", ["GET", pytest.param("POST", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["nginx", "express"])
async def test_a_stream_comes_as_it_happens(
    access_a: Server, feed: Feed, front: Path, tmp_path: Path, kind: str, method: str
) -> None:
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "gzip"}
    body: dict[str, Any] = {"json": {}} if method == "POST" else {}
    async with (
        behind(kind, access_a.port, front, tmp_path) as base,
        httpx.AsyncClient(base_url=base, timeout=PATIENCE_S) as client,
        client.stream(method, f"/v1/streams/{feed.name}/events", headers=headers, **body) as answer,
    ):
        assert answer.status_code == 200
        lines = answer.aiter_lines()
        await next_line(lines, "retry:")
        for n in range(1, 4):
            await asyncio.to_thread(feed.send)
            event = await next_line(lines, 'data: {"stream"')
            assert orjson.loads(event.removeprefix("data:"))["n"] == n


async def test_without_the_word_that_forbids_it_a_stream_is_silent(
    access_a: Server, feed: Feed
) -> None:
    """The control: this proxy does hold back what it may compress."""
    headers = {"Accept": "text/event-stream", "Accept-Encoding": "gzip"}
    async with (
        express(access_a.port, "heedless") as base,
        httpx.AsyncClient(base_url=base, timeout=PATIENCE_S) as client,
        client.stream("GET", f"/v1/streams/{feed.name}/events", headers=headers) as answer,
    ):
        assert answer.headers["content-encoding"] == "gzip"
        await asyncio.to_thread(feed.send)
        with pytest.raises(TimeoutError):
            await next_line(answer.aiter_lines(), "data:", within_s=SILENT_S)


@pytest.mark.parametrize("kind", ["nginx", "express"])
async def test_a_page_is_compressed_and_comes_when_there_is_one(
    access_a: Server, feed: Feed, front: Path, tmp_path: Path, kind: str
) -> None:
    """Pages end, so they may be; who waits is answered with the first event."""
    await asyncio.to_thread(feed.send)
    async with (
        behind(kind, access_a.port, front, tmp_path) as base,
        httpx.AsyncClient(base_url=base, timeout=PATIENCE_S) as client,
    ):
        path = f"/v1/streams/{feed.name}/events"
        for accept in ("application/json", "application/x-ndjson"):
            headers = {"Accept": accept, "Accept-Encoding": "gzip"}
            found = await client.get(path, params={"limit": 1, "from": "earliest"}, headers=headers)
            cursor = found.headers["edgewake-cursor"]
            while found.headers["edgewake-live"] != "true":
                found = await client.get(
                    path, params={"limit": 9, "after": cursor}, headers=headers
                )
                cursor = found.headers["edgewake-cursor"]
            words: dict[str, str | int] = {"after": cursor, "wait": 30, "limit": 1}
            waiting = asyncio.create_task(client.get(path, params=words, headers=headers))
            await asyncio.to_thread(feed.send)
            async with asyncio.timeout(DEADLINE_S):
                answer = await waiting
            assert answer.status_code == 200
            assert answer.headers["content-encoding"] == "gzip"
            assert '"n":' in answer.text


async def test_the_live_stream_of_operations_comes_as_it_happens() -> None:
    ring = EventRing("b")
    app = FastAPI()

    @app.get("/live")
    async def live() -> Response:
        return ring.response(None)

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="off"))
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not server.started:
                await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with (
            express(port) as base,
            httpx.AsyncClient(base_url=base, timeout=PATIENCE_S) as client,
            client.stream("GET", "/live", headers={"Accept-Encoding": "gzip"}) as answer,
        ):
            lines = answer.aiter_lines()
            await next_line(lines, ": live")
            for n in range(3):
                ring.publish([{"n": n}])
                assert f'{{"n":{n}}}' in await next_line(lines, "data:")
    finally:
        ring.close()
        server.should_exit = True
        await serving
