"""The shipped proxy configuration, in the real nginx in front of real access servers."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from playwright.async_api import Page

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.cursor import PARTITIONS_MAX, Cursor, CursorCodec, CursorKeys, StreamPosition
from tests.access.test_readers import FOLLOW_ALL, JS, NODE
from tests.access.world import Server, numbers, open_stream, server
from tests.feeds import DEADLINE_S, Feed, eventually
from tests.services import Process, free_ports

SHIPPED = Path(__file__).parents[2] / "deploy" / "compose" / "nginx.conf"


@asynccontextmanager
async def nginx(folder: Path, access_ports: list[int]) -> AsyncIterator[int]:
    """nginx with the shipped file: only addresses and files of the container are others."""
    (port,) = free_ports(1)
    one, other = [*access_ports, *access_ports][:2]
    text = SHIPPED.read_text()
    for pattern, replacement in (
        ("access-1:8700 resolve", f"127.0.0.1:{one}"),
        ("access-2:8700 resolve", f"127.0.0.1:{other}"),
        ("push:8703 resolve", "127.0.0.1:1"),
        ("listen 8700", f"listen 127.0.0.1:{port}"),
        ("http {", f"http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;"),
        ("worker_connections 30000", "worker_connections 1000"),
    ):
        assert pattern in text, pattern
        text = text.replace(pattern, replacement)
    (folder / "nginx.conf").write_text(re.sub(r"resolver .*;", "", text))
    words = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    running = Process([*words, "-g", f"daemon off; pid {folder}/pid; error_log stderr;"], folder / "nginx.log")
    await asyncio.to_thread(running.start)
    try:
        await eventually(lambda: answers(port), f"nginx answers: {running.log}")
        yield port
    finally:
        running.stop()


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/proxy-health", timeout=5).status_code == 204
    except httpx.HTTPError:
        return False


async def test_events_come_through_the_proxy_as_they_happen_and_with_the_largest_cursor(
    access_a: Server, access_b: Server, feed: Feed, tmp_path: Path
) -> None:
    row = ((2**48 - 1, 2**21 - 1),) * (PARTITIONS_MAX // 16)
    largest = CursorCodec(CursorKeys({1: b"k" * 32}, 1)).encode(Cursor((StreamPosition(b"name", b"gene", row),) * 16))
    async with nginx(tmp_path, [access_a.port, access_b.port]) as port:
        for query in ({}, {"last_event_id": largest}):
            async with open_stream(f"http://127.0.0.1:{port}", feed.name, cursor=largest, on_gap="latest", **query) as stream:
                await stream.until_cursor()
                await asyncio.to_thread(feed.send)
                assert len(numbers(await stream.take(1))) == 1


async def test_while_all_servers_are_away_streams_are_told_to_come_again_and_everything_else_is_502(tmp_path: Path) -> None:
    async with nginx(tmp_path, free_ports(2)) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
        for path in ("/v1/events?stream=s", "/v1/streams/s/events?where=n%3E1"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
            assert re.fullmatch(r"retry: (1000|1500|2000|2500)\n\n", answer.text)
        assert (await client.get("/v1/streams")).status_code == 502


async def test_what_an_access_server_refuses_is_passed_on(access_a: Server, tmp_path: Path) -> None:
    async with nginx(tmp_path, [access_a.port]) as port:
        answer = await asyncio.to_thread(httpx.get, f"http://127.0.0.1:{port}/v1/events?stream=no_such_stream", timeout=30)
    assert (answer.status_code, answer.json()["title"]) == (404, "unknown stream")


async def test_eventsource_survives_that_all_servers_are_away(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, new_feed: Callable[..., Feed], browser_page: Page, tmp_path: Path
) -> None:
    """A browser's and npm's: with 502 both were closed for good."""
    feed = new_feed(partitions=1)

    def send(n: int) -> None:
        feed.send(fields={"n": [n], "text": ["x"]})

    with server(access_directory, kafka_config, cursor_key, retry_ms=200) as mortal:
        async with nginx(tmp_path, [mortal.port]) as port:
            address = f"http://127.0.0.1:{port}/v1/streams/{feed.name}/events?from=earliest"
            send(1)
            npm = await asyncio.create_subprocess_exec(*NODE, "eventsource", address, "2", stdout=subprocess.PIPE, cwd=JS)
            assert npm.stdout is not None
            await browser_page.goto(f"http://127.0.0.1:{port}/healthz")
            await browser_page.evaluate(FOLLOW_ALL, address)
            await browser_page.wait_for_function("got.length == 1", timeout=1000 * DEADLINE_S)
            first = json.loads(await asyncio.wait_for(npm.stdout.readline(), DEADLINE_S))
            async with browser_page.expect_response(lambda answer: answer.headers.get("edgewake-start") == "later"):
                mortal.process.kill()
            await asyncio.to_thread(send, 2)
            await asyncio.to_thread(mortal.restart_after_kill)
            await browser_page.wait_for_function("got.length == 2", timeout=1000 * DEADLINE_S)
            second = json.loads(await asyncio.wait_for(npm.stdout.readline(), DEADLINE_S))
            assert await npm.wait() == 0
            assert await browser_page.evaluate("got.map(r => r[0])") == [1, 2] == [first["n"], second["n"]]
