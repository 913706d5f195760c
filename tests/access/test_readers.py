"""Readers that others wrote: curl, httpx-sse, eventsource-parser in Node, and a browser's EventSource. Each reads and resumes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from httpx_sse import aconnect_sse
from playwright.async_api import Page, async_playwright

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, server
from tests.feeds import DEADLINE_S, Feed, eventually
from tests.services import free_ports

JS = Path(__file__).parents[1] / "js"
ODD = ["a\nb\r\nc\rd", "\u2028 \u2029 \x85", "日本 🚗", "data: x\n\nid: y"]


def url(running: Server, feed: Feed) -> str:
    return f"{running.url}/v1/streams/{feed.name}/events?from=earliest"


def curl(*arguments: str, lines: int) -> list[str]:
    """The first lines that hold data; then curl is ended."""
    with subprocess.Popen(["curl", "-sN", "--max-time", str(DEADLINE_S), *arguments], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        found: list[str] = []
        for line in child.stdout:
            found.append(line.decode().rstrip("\n"))
            if sum(line.startswith("data: ") for line in found) == lines:
                break
        child.kill()
        return found


def test_curl_reads_and_resumes(access_a: Server, access_b: Server, feed: Feed) -> None:
    feed.send(n=4)
    lines = curl(url(access_a, feed), lines=2)
    last = [line for line in lines if line.startswith("id: ")][-1].removeprefix("id: ")
    rest = curl("-H", f"Last-Event-ID: {last}", url(access_b, feed), lines=2)
    data = [json.loads(line.removeprefix("data: ")) for line in lines + rest if line.startswith("data: ")]
    assert [reading["n"] for reading in data] == [1, 2, 3, 4]


async def test_httpx_sse_reads_and_resumes(access_a: Server, access_b: Server, feed: Feed) -> None:
    """It gives an empty event for a block that has an id alone; a reader passes those over."""
    feed.send(n=3)

    async def read(base: Server, count: int, **headers: str) -> list[Any]:
        found: list[Any] = []
        async with httpx.AsyncClient(timeout=DEADLINE_S) as client, aconnect_sse(client, "GET", url(base, feed), headers=headers) as source:
            async for event in source.aiter_sse():
                if event.data:
                    found.append(event)
                if len(found) == count:
                    break
        return found

    first = await read(access_a, 2)
    second = await read(access_b, 1, **{"Last-Event-ID": first[-1].id})
    assert [event.json()["n"] for event in first + second] == [1, 2, 3]


def node(*arguments: str) -> list[dict[str, Any]]:
    done = subprocess.run(["node", "read.mjs", *arguments], cwd=JS, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def test_eventsource_parser_reads_and_resumes(access_a: Server, access_b: Server, feed: Feed) -> None:
    feed.send(n=len(ODD), fields={"text": ODD})
    first = node(url(access_a, feed), "2")
    second = node(url(access_b, feed), "2", first[-1]["id"])
    assert [json.loads(event["data"])["text"] for event in first + second] == ODD


@pytest.fixture
async def browser_page() -> AsyncIterator[Page]:
    """A blank page in headless Chromium."""
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        yield await browser.new_page()
        await browser.close()


FOLLOW = """name => {
  window.got = []; window.opened = 0;
  const source = new EventSource(`/v1/streams/${name}/events?from=earliest`);
  source.onopen = () => window.opened++;
  source.onmessage = e => window.got.push(JSON.parse(e.data).n);
}"""


async def test_a_browser_s_eventsource_resumes_by_itself_when_the_server_dies_and_comes_back(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, new_feed: Callable[..., Feed], browser_page: Page
) -> None:
    feed = new_feed()
    with server(access_directory, kafka_config, cursor_key, port=free_ports(1)[0], retry_ms=200) as mortal:
        await browser_page.goto(f"{mortal.url}/healthz")
        await asyncio.to_thread(feed.send, n=3)
        await browser_page.evaluate(FOLLOW, feed.name)
        await browser_page.wait_for_function("window.got.length == 3", timeout=1000 * DEADLINE_S)
        mortal.process.kill()
        await asyncio.to_thread(feed.send, n=3)
        await asyncio.to_thread(mortal.restart_after_kill)
        await browser_page.wait_for_function("window.got.length >= 6", timeout=1000 * DEADLINE_S)
        mortal.process.stop()
        await asyncio.to_thread(feed.send, n=3)
        await asyncio.to_thread(mortal.restart_after_kill)
        await browser_page.wait_for_function("window.got.length >= 9", timeout=1000 * DEADLINE_S)
        assert await browser_page.evaluate("window.got") == list(range(1, 10))
        assert await browser_page.evaluate("window.opened") == 3


async def test_a_browser_is_not_stopped_for_ever_by_a_full_server(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, feed: Feed, browser_page: Page
) -> None:
    """Any status but 200 would end its EventSource; it is told to come again and gets in when there is room."""
    with server(access_directory, kafka_config, cursor_key, clients_max=1, retry_ms=200) as small:
        occupier = await asyncio.to_thread(subprocess.Popen, ["curl", "-sN", url(small, feed)], stdout=subprocess.DEVNULL)
        await eventually(lambda: "clients 1.0" in httpx.get(f"{small.url}/metrics", timeout=30).text, "the place is taken")
        await browser_page.goto(f"{small.url}/healthz")
        await browser_page.evaluate(FOLLOW, feed.name)
        await browser_page.wait_for_function("window.opened > 0", timeout=1000 * DEADLINE_S)
        occupier.kill()
        occupier.wait()
        await asyncio.to_thread(feed.send, n=2)
        await browser_page.wait_for_function("window.got.length == 2", timeout=1000 * DEADLINE_S)
