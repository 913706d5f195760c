"""What one socket may cost: attacks on real servers, and the same without the bound as a
control.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.sockets.raw import PING, TEXT, frame, raw
from tests.access.sockets.talk import places, talk
from tests.access.world import Server, server
from tests.feeds import DEADLINE_S, Feed
from tests.services import wait_until

pytestmark = pytest.mark.services

CHANGED = "tests.access.sockets.changed_server"
ATTACKER, OTHER = "127.0.0.2", "127.0.0.3"


@pytest.fixture
def changed(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Any]:
    """Makes servers with other bounds of sockets, and settings."""

    @contextmanager
    def made(bounds: dict[str, Any], **settings: Any) -> Iterator[Server]:
        monkeypatch.setenv("EDGEWAKE_TEST_BOUNDS", orjson.dumps(bounds).decode())
        with server(
            access_directory, kafka_config, cursor_key, module=CHANGED, **settings
        ) as running:
            yield running

    return made


async def ping_without_reading(running: Server, seconds: float) -> float:
    """MiB by which a server grows of which a client asks pongs that it never reads."""
    before = running.rss_mib()
    async with raw(running.port, limit=1024) as socket:
        flood = frame(PING, b"x" * 125) * 500
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(seconds):
                while running.rss_mib() < before + 60:
                    socket.writer.write(flood)
                    await socket.writer.drain()
        return running.rss_mib() - before


@pytest.mark.long
async def test_pings_of_a_client_that_does_not_read_cost_no_memory(
    changed: Callable[..., Any],
) -> None:
    with changed({}, stall_s=3) as running:
        grown = await ping_without_reading(running, 15)
    with changed({"answers_all_pings": True}, stall_s=60) as running:
        control = await ping_without_reading(running, DEADLINE_S)
    assert control >= 60, "without the bound each ping's answer waits in memory"
    assert grown < 20


async def flooded_s(running: Server, name: str) -> float:
    """Seconds until 600 messages of a flood are heard: each gives one credit."""
    async with talk(running) as socket:
        await socket.say("subscribe", streams=[name], from_="earliest", credits=0)
        await socket.until("subscribed")
        credit = frame(TEXT, b'{"type":"credit","id":"a","credits":1}')
        began = time.monotonic()
        socket.socket.transport.write(credit * 1000)
        await socket.take(600)
        return time.monotonic() - began


@pytest.mark.long
async def test_a_flood_of_messages_is_heard_at_a_bounded_rate(
    changed: Callable[..., Any], feed: Feed
) -> None:
    """A hundred at once, then fifty a second."""
    feed.send(n=100, frames=10)
    with changed({}) as running:
        took = await flooded_s(running, feed.name)
    with changed({"MESSAGES_PER_S": 1_000_000}) as running:
        control = await flooded_s(running, feed.name)
    assert took >= (600 - 100) / 50 - 0.1
    assert control < took / 2


async def test_one_address_has_its_share_of_sockets_and_subscriptions(
    changed: Callable[..., Any], feed: Feed
) -> None:
    with changed({}, clients_max=40) as running:
        async with AsyncExitStack() as stack:
            for _ in range(10):
                await stack.enter_async_context(talk(running, local_addr=(ATTACKER, 0)))
            for _ in range(3):
                with pytest.raises(InvalidStatus) as refused:
                    await stack.enter_async_context(talk(running, local_addr=(ATTACKER, 0)))
                assert refused.value.response.status_code == 503
                assert "Retry-After" in refused.value.response.headers
            other = await stack.enter_async_context(talk(running, local_addr=(OTHER, 0)))
            for number in range(10):
                await other.say("subscribe", f"s{number}", streams=[feed.name])
            answers = [await other.until("subscribed", "problem") for _ in range(10)]
            (problem,) = [answer for answer in answers if answer["type"] == "problem"]
            assert (problem["code"], problem["id"]) == ("full", "s9")
            assert problem["retry_after_s"] > 0
        async with talk(running, local_addr=(ATTACKER, 0)) as again:  # what was held is given back
            await again.say("subscribe", streams=[feed.name])
            await again.until("subscribed")


async def test_a_socket_has_so_many_subscriptions(access_a: Server, feed: Feed) -> None:
    async with talk(access_a) as socket:
        for number in range(33):
            await socket.say("subscribe", f"s{number}", streams=[feed.name])
        problem = await socket.until("problem")
        assert (problem["code"], problem["id"]) == ("subscriptions", "s32")
        await socket.say("unsubscribe", "s0")
        await socket.until("end")
        await socket.say("subscribe", "s32", streams=[feed.name])
        while (await socket.until("subscribed"))["id"] != "s32":
            pass


async def test_a_program_that_makes_nothing_but_mistakes_is_ended(access_a: Server) -> None:
    async with talk(access_a) as socket:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(100):
                await socket.socket.send("{")
        code, reason = await socket.until_closed()
        assert (code, reason) == (1008, "20 messages that cannot be understood")
        assert len([m for m in socket.heard if m["type"] == "problem"]) == 20


@pytest.mark.long
async def test_a_socket_without_use_is_ended_and_one_with_a_silent_stream_is_not(
    changed: Callable[..., Any], feed: Feed
) -> None:
    with changed({"IDLE_S": 2.0}, heartbeat_s=1) as running:
        async with talk(running) as idle, talk(running) as used:
            await used.say("subscribe", streams=[feed.name])
            code, reason = await idle.until_closed()
            assert (code, reason) == (1008, "no subscription within 2 seconds")
            for _ in range(4):
                await used.until("heartbeat")
            feed.send()
            assert places(await used.take(1)) == [("dev-1", 1)]


async def test_a_client_that_does_not_read_is_cut_off_and_costs_nobody_else(
    changed: Callable[..., Any], feed: Feed
) -> None:
    columns = {"text": ["x" * 4000] * 100}
    for _ in range(50):
        feed.send(n=100, fields=columns)
    with changed({}, stall_s=2) as running:
        async with raw(running.port, limit=1024) as dead, talk(running) as living:
            words = {"type": "subscribe", "id": "a", "streams": [feed.name], "from": "earliest"}
            await dead.send(frame(TEXT, orjson.dumps(words)))
            before = running.rss_mib()
            await living.say("subscribe", streams=[feed.name], from_="earliest")
            assert len(await living.take(5000)) == 5000
            await asyncio.to_thread(dead_is_cut, running)
            assert running.rss_mib() < before + 150


def dead_is_cut(running: Server) -> None:
    """One socket is left."""

    def sockets() -> float:
        text = httpx.get(f"{running.url}/metrics", timeout=DEADLINE_S).text
        return float(text.split("\nedgewake_access_sockets ")[1].split("\n")[0])

    wait_until(lambda: sockets() == 1, "the client that does not read is cut off")
