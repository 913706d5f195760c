"""Readers that others wrote: each is cut inside its first event and later, and gets every event
once.

The table of docs/access.md: a browser's EventSource, npm eventsource, undici's EventSource,
eventsource-parser with fetch, httpx-sse, sseclient-py, LaunchDarkly's, and curl in the hands of a
person. Those that do not reconnect by themselves are made to as their users do.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, open_stream, server
from tests.cutting_proxy import CuttingProxy, cutting_proxy
from tests.feeds import DEADLINE_S, Feed, eventually
from tests.services import PATIENCE_S, free_ports

pytestmark = pytest.mark.asyncio(loop_scope="session")
"""One browser serves all tests."""

HERE = Path(__file__).parent
JS = HERE.parent / "js"
COUNT = 24
CUTS = [b'"n":1', b'"n":10', b'"n":17']
"""In the middle of these events: the first, and two later ones."""
ODD = ["a\nb\r\nc\rd", "\u2028 \u2029 \x85", "日本 🚗", "data: x\n\nid: y"]
READINGS = [(n, ODD[n % len(ODD)]) for n in range(1, COUNT + 1)]
PYTHON = [sys.executable, str(HERE / "foreign_reader.py")]
NODE = ["node", str(JS / "follow.mjs")]
PROGRAMS = {
    "npm eventsource": [*NODE, "eventsource"],
    "undici EventSource": [*NODE, "undici"],
    "eventsource-parser": [*NODE, "parser"],
    "httpx-sse": [*PYTHON, "httpx_sse"],
    "sseclient-py": [*PYTHON, "sseclient"],
    "launchdarkly-eventsource": [*PYTHON, "launchdarkly"],
    "curl": [*PYTHON, "curl"],
}


def url(running: Server | CuttingProxy, feed: Feed, **query: str) -> str:
    return f"http://127.0.0.1:{running.port}/v1/streams/{feed.name}/events?" + "&".join(
        f"{key}={value}" for key, value in query.items()
    )


def send(feed: Feed, first: int, last: int) -> None:
    """Readings with the numbers `first` to `last`, each in a transaction of its own, with strings
    that tear naive readers apart.
    """
    for n in range(first, last + 1):
        feed.send(fields={"n": [n], "text": [ODD[n % len(ODD)]]})


async def follow(program: list[str], address: str) -> list[tuple[int, str]]:
    """What a program that follows `address` shows until it has the last reading."""
    child = await asyncio.create_subprocess_exec(
        *program, address, str(COUNT), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=JS
    )
    try:
        async with asyncio.timeout(2 * DEADLINE_S):
            out, err = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode == 0, err.decode()
    return [(int(reading["n"]), reading["text"]) for reading in map(json.loads, out.splitlines())]


FOLLOW_ALL = """address => {
  window.got = [];
  window.source = new EventSource(address);
  source.onmessage = e => { const r = JSON.parse(e.data); got.push([r.n, r.text]); };
}"""


async def follow_in_browser(page: Page, proxy: CuttingProxy, feed: Feed) -> list[tuple[int, str]]:
    await page.goto(f"http://127.0.0.1:{proxy.port}/healthz")
    await page.evaluate(FOLLOW_ALL, url(proxy, feed))
    await page.wait_for_function(
        f"got.length && got.at(-1)[0] >= {COUNT}", timeout=2000 * DEADLINE_S
    )
    return [(int(n), text) for n, text in await page.evaluate("got")]


async def test_every_client_gets_every_event_once_through_three_cuts(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    new_feed: Callable[..., Feed],
    browser_page: Page,
) -> None:
    """They begin at the live end and without a cursor of their own; the first cut comes before
    their first whole event.
    """
    feed = new_feed(partitions=1)
    names = [*PROGRAMS, "Chromium"]
    with server(access_directory, kafka_config, cursor_key, retry_ms=200) as target:
        async with contextlib.AsyncExitStack() as stack:
            proxies = {
                name: await stack.enter_async_context(cutting_proxy(target.port, CUTS))
                for name in names
            }
            following = {
                name: asyncio.create_task(follow(words, url(proxies[name], feed)))
                for name, words in PROGRAMS.items()
            }
            following["Chromium"] = asyncio.create_task(
                follow_in_browser(browser_page, proxies["Chromium"], feed)
            )
            async with asyncio.timeout(DEADLINE_S):
                await asyncio.gather(*(proxy.began.wait() for proxy in proxies.values()))
            await asyncio.to_thread(send, feed, 1, COUNT)
            got = {name: await task for name, task in following.items()}
    assert got == dict.fromkeys(names, READINGS)
    assert {name: proxy.made for name, proxy in proxies.items()} == dict.fromkeys(names, len(CUTS))


@pytest.mark.long
async def test_a_client_that_overlooks_lone_ids_would_lose_events(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    """Control: with `checkpoint=id` sseclient-py has no cursor before its first whole event, and
    what comes until it is back is lost.
    """
    feed = new_feed(partitions=1)
    async with cutting_proxy(access_a.port, CUTS[:1]) as proxy:
        following = asyncio.create_task(
            follow(PROGRAMS["sseclient-py"], url(proxy, feed, checkpoint="id"))
        )
        await proxy.began.wait()
        await asyncio.to_thread(send, feed, 1, COUNT - 1)
        while not following.done():  # it begins again at the live end, at some time
            await asyncio.to_thread(send, feed, COUNT, COUNT)
            await asyncio.sleep(0.05)
    assert proxy.made == 1
    assert (await following)[0][0] > 1


FOLLOW = """name => {
  window.got = []; window.opened = 0;
  const source = new EventSource(`/v1/streams/${name}/events?from=earliest`);
  source.onopen = () => window.opened++;
  source.onmessage = e => window.got.push(JSON.parse(e.data).n);
}"""


@pytest.mark.long
async def test_a_browser_s_eventsource_resumes_by_itself_when_the_server_dies_and_comes_back(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    new_feed: Callable[..., Feed],
    browser_page: Page,
) -> None:
    feed = new_feed()
    with server(
        access_directory, kafka_config, cursor_key, port=free_ports(1)[0], retry_ms=200
    ) as mortal:
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


@pytest.mark.long
async def test_a_browser_that_asked_to_stop_at_a_gap_stops(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed], browser_page: Page
) -> None:
    """It comes back by itself with the gap's id, is answered 204, and has been sent nothing of what
    comes after the gap.
    """
    feed = new_feed(partitions=1)
    for _ in range(10):
        feed.send()
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        cursor = (await stream.take(1))[0].id
    feed.trim(0, 10)
    await browser_page.goto(f"{access_b.url}/healthz")
    script = """address => {
      window.got = []; window.source = new EventSource(address);
      for (const kind of ["message", "gap"]) source.addEventListener(kind, e => got.push(kind));
    }"""
    await browser_page.evaluate(script, url(access_b, feed, on_gap="stop", last_event_id=cursor))
    await browser_page.wait_for_function("source.readyState === 2", timeout=1000 * DEADLINE_S)
    assert await browser_page.evaluate("got") == ["gap"]


@pytest.mark.long
async def test_a_browser_is_not_stopped_for_ever_by_a_full_server(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    feed: Feed,
    browser_page: Page,
) -> None:
    """Any status but 200 would end its EventSource; it is told to come again and gets in when there
    is room.
    """
    with server(access_directory, kafka_config, cursor_key, clients_max=1, retry_ms=200) as small:
        occupier = await asyncio.to_thread(
            subprocess.Popen, ["curl", "-sN", url(small, feed)], stdout=subprocess.DEVNULL
        )
        await eventually(
            lambda: "clients 1.0" in httpx.get(f"{small.url}/metrics", timeout=PATIENCE_S).text,
            "the place is taken",
        )
        await browser_page.goto(f"{small.url}/healthz")
        await browser_page.evaluate(FOLLOW, feed.name)
        await browser_page.wait_for_function("window.opened > 0", timeout=1000 * DEADLINE_S)
        occupier.kill()
        occupier.wait()
        await asyncio.to_thread(feed.send, n=2)
        await browser_page.wait_for_function("window.got.length == 2", timeout=1000 * DEADLINE_S)
