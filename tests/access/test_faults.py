"""What servers and clients do to each other: deaths, drains, readers that never read."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import orjson
import pytest
from playwright.async_api import Page

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, numbers, open_stream, server
from tests.feeds import DEADLINE_S, Feed, eventually
from tests.services import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="session")
"""One browser serves all tests."""

FAULTY = "tests.access.faulty_server"
SMALL_BUFFER = {"send_buffer_bytes": 8192}
"""Of each connection, so that little data fills it."""


def metric(running: Server, name: str) -> float:
    lines = httpx.get(f"{running.url}/metrics", timeout=PATIENCE_S).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def test_a_killed_server_s_clients_go_on_at_the_other(
    access_b: Server,
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    feed: Feed,
) -> None:
    with server(access_directory, kafka_config, cursor_key) as doomed:
        async with open_stream(doomed.url, feed.name) as stream:
            await stream.until_cursor()
            feed.send(n=5)
            first = await stream.take(3)
            doomed.process.kill()
            assert not doomed.process.is_running()
        feed.send(n=5)
        async with open_stream(access_b.url, feed.name, cursor=first[-1].id) as stream:
            assert numbers(first + await stream.take(7)) == [("dev-1", n) for n in range(1, 11)]


async def test_sigterm_ends_every_stream_at_an_event_s_border(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, feed: Feed
) -> None:
    with server(access_directory, kafka_config, cursor_key) as leaving:
        async with (
            open_stream(leaving.url, feed.name) as one,
            open_stream(leaving.url, feed.name, where="n > 0") as two,
        ):
            await one.until_cursor()
            await two.until_cursor()
            leaving.process.signal(signal.SIGTERM)
            retries = []
            for stream in (one, two):
                assert [event async for event in stream.events()] == []
                assert stream.ended
                retries.append(stream.parser.retry_ms)
        await eventually(lambda: not leaving.process.is_running(), "the server is gone")
        assert leaving.process.stop() == 0
        assert all(100 <= (retry or 0) <= 5000 for retry in retries)


@pytest.mark.long
async def test_sigterm_does_not_wait_for_a_reader_that_never_reads(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, feed: Feed
) -> None:
    feed.send(n=100, frames=100)
    with server(access_directory, kafka_config, cursor_key, hub=SMALL_BUFFER) as leaving:
        with never_reading(leaving.port, feed.name):
            await eventually(
                lambda: metric(leaving, "edgewake_access_sent_bytes_total") > 50_000,
                "its buffers are full",
            )
            leaving.process.signal(signal.SIGTERM)
            await eventually(lambda: not leaving.process.is_running(), "the server is gone")
        assert leaving.process.stop() == 0


def never_reading(port: int, name: str, query: str = "") -> socket.socket:
    """A client that asks and then reads nothing, with the smallest of receive buffers."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(
        (
            f"GET /v1/streams/{name}/events?from=earliest{query} HTTP/1.1\r\nHost: "
            "127.0.0.1\r\n\r\n"
        ).encode()
    )
    return client


@pytest.mark.long
async def test_readers_that_never_read_cost_bounded_memory_and_are_cut_off_and_others_go_on(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    new_feed: Callable[..., Feed],
) -> None:
    feed = new_feed(partitions=1)
    feed.send(n=100, frames=100)  # 10 000 readings, 2 MB of events for each client
    with (
        contextlib.ExitStack() as stack,
        server(access_directory, kafka_config, cursor_key, stall_s=4, hub=SMALL_BUFFER) as bounded,
    ):
        async with open_stream(bounded.url, feed.name, from_="earliest") as reader:
            await reader.take(10_000)
            before = bounded.rss_mib()
            dead = [stack.enter_context(never_reading(bounded.port, feed.name)) for _ in range(100)]
            await eventually(lambda: metric(bounded, "edgewake_access_clients ") == 101, "all sit")
            feed.send(n=100, frames=20)
            assert len(await reader.take(2000)) == 2000
            assert bounded.rss_mib() - before < 60
            await eventually(
                lambda: metric(bounded, "edgewake_access_clients ") == 1, "the dead are cut off"
            )
            assert metric(bounded, 'edgewake_access_ended_total{why="stalled"}') == 100
            feed.send(n=1)
            assert len(await reader.take(1)) == 1
            assert len(dead) == 100


@pytest.mark.long
async def test_a_slow_reader_loses_its_chunks_and_still_gets_every_event_once(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    new_feed: Callable[..., Feed],
) -> None:
    """It is live, then stops reading while more comes than tail and chunks keep, then reads on:
    through Kafka, without a seam.
    """
    feed = new_feed(partitions=2)
    hub = {"tail_bytes": 1 << 20, "chunks_bytes": 1 << 20, "tail_back_records": 0}
    text = ["x" * 500] * 100
    with server(
        access_directory, kafka_config, cursor_key, stall_s=120, hub=SMALL_BUFFER | hub
    ) as bounded:
        async with open_stream(bounded.url, feed.name, limit=4096) as slow:
            await slow.until_cursor()
            for i in range(120):  # 12 000 readings of half a kilobyte
                first = 100 * i + 1
                await asyncio.to_thread(
                    feed.send,
                    "dev-1",
                    100,
                    fields={"n": [float(first + j) for j in range(100)], "text": text},
                )
            assert metric(bounded, "edgewake_access_tail_bytes") <= 1 << 20
            async with asyncio.timeout(2 * DEADLINE_S):
                events = await slow.take(12_000)
            assert numbers(events) == [("dev-1", n) for n in range(1, 12_001)]
            assert metric(bounded, "edgewake_access_replayed_blocks_total") > 0


@pytest.mark.long
async def test_a_filter_that_fails_ends_its_stream_with_a_problem_and_nobody_elses(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    new_feed: Callable[..., Feed],
) -> None:
    feed = new_feed(partitions=1)
    with server(access_directory, kafka_config, cursor_key, module=FAULTY) as faulty:
        async with (
            open_stream(faulty.url, feed.name, where="abs(n) > 0") as failing,
            open_stream(faulty.url, feed.name) as other,
        ):
            await failing.until_cursor()
            await other.until_cursor()
            feed.send(n=2)
            assert numbers(await failing.take(2)) == [("dev-1", 1), ("dev-1", 2)]
            feed.send(n=2)
            last = [event async for event in failing.events() if event.type != "checkpoint"]
            assert [(event.type, orjson.loads(event.data)["code"]) for event in last] == [
                ("problem", "subscription_failed")
            ]
            assert "a bug of ours" in orjson.loads(last[0].data)["detail"]
            assert (failing.ended, failing.parser.retry_ms) == (True, 30_000), (
                "it would fail again, so it is told to take its time"
            )
            assert numbers(await other.take(4)) == [("dev-1", n) for n in range(1, 5)]
            cursor = failing.parser.last_event_id
        assert metric(faulty, 'edgewake_access_ended_total{why="failed"}') == 1
        async with open_stream(
            faulty.url, feed.name, cursor=cursor, where="n > 0"
        ) as again:  # another filter, at the same place
            assert numbers(await again.take(2)) == [("dev-1", 3), ("dev-1", 4)]


@pytest.mark.long
async def test_a_fault_of_ours_is_500_for_programs_and_later_for_a_browser_which_comes_back(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    feed: Feed,
    browser_page: Page,
) -> None:
    feed.send(n=1)
    with server(access_directory, kafka_config, cursor_key, module=FAULTY, retry_ms=100) as faulty:
        address = f"{faulty.url}/v1/streams/{feed.name}/events?where=n+%3D+500"
        program = httpx.get(address, timeout=PATIENCE_S)
        assert (program.status_code, program.json()["type"]) == (
            500,
            "urn:edgewake:problem:internal",
        )
        browser = httpx.get(address, timeout=PATIENCE_S, headers={"Sec-Fetch-Mode": "cors"})
        assert (browser.status_code, browser.headers["edgewake-start"]) == (200, "later")
        assert browser.headers["content-type"].startswith("text/event-stream")
        refused = metric(faulty, 'edgewake_access_refused_total{code="internal"}')
        await browser_page.goto(f"{faulty.url}/healthz")
        await browser_page.evaluate(
            "address => { window.source = new EventSource(address); }", address
        )
        await eventually(
            lambda: metric(faulty, 'edgewake_access_refused_total{code="internal"}') >= refused + 2,
            "it comes again",
        )
        assert await browser_page.evaluate("source.readyState") != 2, "closed for ever"


async def test_a_filter_of_ins_within_ins_keeps_nobody_waiting(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    """Evaluated once per item at each level it would take a fifth of a second an event; 2000 events
    are a quarter of an hour.
    """
    feed = new_feed(partitions=1)
    feed.send(n=100, frames=20)
    nested = "n"
    for _ in range(8):
        nested = f"({nested} IN (1, 2, 3, 4, 5))"
    async with open_stream(
        access_a.url, feed.name, where=f"{nested} IS NULL", from_="earliest"
    ) as stream:
        alive = asyncio.create_task(
            asyncio.to_thread(httpx.get, f"{access_a.url}/healthz", timeout=DEADLINE_S)
        )
        assert (await alive).status_code == 200
        assert len(await stream.take(2000)) == 2000


async def test_a_silent_stream_has_heartbeats(access_a: Server, feed: Feed) -> None:
    async with open_stream(access_a.url, feed.name) as stream, asyncio.timeout(DEADLINE_S):
        await stream.until_cursor()
        assert [await stream.chunk() for _ in range(2)] == [b":\n"] * 2


async def test_a_client_that_goes_leaves_nothing_behind(access_a: Server, feed: Feed) -> None:
    before = metric(access_a, "edgewake_access_clients ")
    views = metric(access_a, "edgewake_access_views ")
    async with open_stream(access_a.url, feed.name, where="n > 5") as stream:
        await stream.until_cursor()
        assert metric(access_a, "edgewake_access_clients ") == before + 1
    await eventually(
        lambda: metric(access_a, "edgewake_access_clients ") == before, "the client is gone"
    )
    assert metric(access_a, "edgewake_access_views ") == views


@pytest.mark.parametrize(
    "bad",
    [
        b"GET /v1/events HTTP/1.1\r\nX: " + b"a" * 70_000,
        b"\x16\x03\x01\x02\x00" * 40,
        b"GET \r\n\r\n",
    ],
)
async def test_bytes_that_are_no_request_harm_nobody(access_a: Server, bad: bytes) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", access_a.port)
    writer.write(bad)
    await asyncio.sleep(0)
    assert (
        await asyncio.to_thread(httpx.get, f"{access_a.url}/healthz", timeout=PATIENCE_S)
    ).status_code == 200
    writer.close()
