"""A really slow TCP reader: what was asked is done about it, and a fast one beside it has all."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.ops.open_client import OpenClient, ServerClients
from tests.access.sockets.talk import places, talk
from tests.access.world import Event, Server, Stream, open_stream, server
from tests.feeds import DEADLINE_S, Feed, eventually
from tests.services import PATIENCE_S, Kafka

pytestmark = pytest.mark.services

TEXT = {f"text_{i}": ["x" * 8000] for i in range(5)}
"""Eight such events fill what waits for a client on its way."""
FRAMES = 20
DEVICES = ("dev-1", "dev-2")
TURNS = 3


@pytest.fixture(scope="module")
def running(
    kafka: Kafka, cursor_key: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that acts after five seconds."""
    directory = tmp_path_factory.mktemp("slow")
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    with server(directory, config, cursor_key, slow_after_s=5, stall_s=120) as found:
        yield found


async def fall_behind(feed: Feed, kafka: Kafka, devices: tuple[str, ...] = DEVICES[:1]) -> int:
    """More comes than waits on the way to a client that does not read, until operators see that its
    policy is to act; how many readings of each device.
    """
    for _ in range(TURNS):
        for device in devices:
            await asyncio.to_thread(feed.send, device, frames=FRAMES, fields=TEXT)
    seen = await asyncio.to_thread(reported, kafka, feed.name, " in 0 s; ")
    assert seen.behind_records > 0
    assert seen.behind_s >= 5
    assert seen.policy.endswith(" in 0 s")
    return TURNS * FRAMES


def reported(kafka: Kafka, stream: str, words: str) -> OpenClient:
    """What a server reports of a reader of this stream, once it says so of what becomes of it."""
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    consumer = clients.consumer(config, "slow-readers-test")
    try:
        consumer.assign([TopicPartition(topics.CLIENTS, 0, OFFSET_BEGINNING)])
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            message = consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            found = ServerClients.model_validate_json(message.value())
            for one in found.clients:
                if one.streams == (stream,) and words in one.slow:
                    return one
        raise AssertionError(f"nobody is reported that reads {stream} and {words!r}")
    finally:
        consumer.close()


@asynccontextmanager
async def slow_stream(running: Server, feed: Feed, **query: Any) -> AsyncIterator[Stream]:
    """A stream whose reader's kernel holds little."""
    async with open_stream(running.url, feed.name, limit=4096, **query) as stream:
        sock = stream.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        yield stream


async def until(stream: Stream, kind: str) -> list[Event]:
    """All events up to one of this kind."""
    seen: list[Event] = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in stream.events():
            seen.append(event)
            if event.type == kind:
                break
    return seen


def told_of(events: list[Event]) -> list[dict[str, Any]]:
    """What told how far it was behind."""
    return [orjson.loads(event.data) for event in events if event.type == "behind"]


def seqs(events: list[Event], device: str = "dev-1") -> list[int]:
    rows = [orjson.loads(event.data) for event in events if event.type == "message"]
    return [row["seq"] for row in rows if row["device"] == device]


async def first_seq(running: Server, feed: Feed, cursor: str) -> int:
    """Where a cursor goes on."""
    async with open_stream(running.url, feed.name, cursor=cursor) as stream:
        (event,) = await stream.take(1)
        return int(orjson.loads(event.data)["seq"])


async def test_skip_goes_on_at_the_live_end_behind_an_exact_gap(
    running: Server, new_feed: Callable[..., Feed], kafka: Kafka
) -> None:
    feed = new_feed(partitions=1)
    async with (
        slow_stream(running, feed, slow="skip") as stream,
        open_stream(running.url, feed.name, limit=2**20, slow="skip") as fast,
    ):
        await stream.until_cursor()
        await fast.until_cursor()
        beside = asyncio.create_task(fast.take(TURNS * FRAMES))
        sent = await fall_behind(feed, kafka)
        assert seqs(await beside) == list(range(1, sent + 1)), "the control: who reads has all"
        assert b"event: behind" not in fast.raw
        seen = await until(stream, "gap")
        told = told_of(seen)
        gap = orjson.loads(seen[-1].data)
        assert (gap["scope"], gap["reason"], gap["continues"]) == ("cursor", "slow", "latest")
        before = seqs(seen)
        feed.send()
        after = seqs(await stream.take(1))
    assert before == list(range(1, len(before) + 1))
    assert after == [sent + 1], "it goes on at the live end"
    assert before[-1] < sent, "something was skipped"
    # A transaction of FRAMES records takes one number more, its marker.
    lost = [n for n in range(1, sent + 1) if gap["from"] <= offset_of(n) < gap["to"]]
    assert lost == list(range(before[-1] + 1, sent + 1)), "the gap names exactly what is missing"
    assert gap["lost"] == gap["to"] - gap["from"]
    last = [event.id for event in seen if event.type == "message"][-1]
    assert await first_seq(running, feed, last) == before[-1] + 1, "the past can still be read"
    assert await first_seq(running, feed, seen[-1].id) == after[0]
    assert told, "it was told before"
    assert told[0]["policy"] == "skip"
    assert told[0]["records"] > 0
    assert told[0]["events"] > 0
    assert told[0]["acts_in"] <= 5


def offset_of(seq: int) -> int:
    return seq - 1 + (seq - 1) // FRAMES


@pytest.mark.long
async def test_end_says_why_and_the_cursor_goes_on(
    running: Server, new_feed: Callable[..., Feed], kafka: Kafka
) -> None:
    feed = new_feed(partitions=1)
    async with slow_stream(running, feed, slow="end", slow_after=5) as stream:
        await stream.until_cursor()
        await fall_behind(feed, kafka)
        seen = await until(stream, "end")
        why = orjson.loads(seen[-1].data)
        assert (why["reason"], why["policy"]) == ("slow", "end")
        assert why["records"] > 0
        async with asyncio.timeout(DEADLINE_S):
            assert [event.type async for event in stream.events()] == []
        assert stream.ended
    before = seqs(seen)
    assert before == list(range(1, len(before) + 1))
    assert await first_seq(running, feed, stream.parser.last_event_id) == before[-1] + 1
    metrics = httpx.get(f"{running.url}/metrics", timeout=PATIENCE_S).text
    assert 'edgewake_access_ended_total{why="slow"}' in metrics
    assert 'edgewake_access_slow_acts_total{policy="end"}' in metrics


@pytest.mark.long
async def test_conflate_gives_the_latest_of_each_device_and_then_every_event_again(
    running: Server, new_feed: Callable[..., Feed], kafka: Kafka
) -> None:
    feed = new_feed(partitions=1)
    async with slow_stream(running, feed, slow="conflate") as stream:
        await stream.until_cursor()
        sent = await fall_behind(feed, kafka, DEVICES)
        seen: list[Event] = []
        async with asyncio.timeout(PATIENCE_S):
            async for event in stream.events():
                seen.append(event)
                if event.type == "conflated" and latest(seen) == dict.fromkeys(DEVICES, sent):
                    break
        feed.send("dev-2", frames=3)
        after = await stream.take(3)
    left_out = sum(orjson.loads(e.data)["superseded"] for e in seen if e.type == "conflated")
    shown = {device: seqs(seen, device) for device in DEVICES}
    assert left_out > sent, "most of it was left out"
    assert left_out + sum(map(len, shown.values())) == 2 * sent, "each is counted once"
    assert all(own == sorted(own) for own in shown.values())
    assert seqs(after, "dev-2") == [sent + 1, sent + 2, sent + 3], "every event again"
    cursor = [event.id for event in seen if event.type == "message"][-1]
    assert await first_seq(running, feed, cursor) == sent + 1, "its cursor is exact"
    first = next(event.id for event in seen if event.type == "message")
    assert await first_seq(running, feed, first) == 2, "what was left out is still there"
    assert told_of(seen)[-1]["policy"] == "conflate"


def latest(events: list[Event]) -> dict[str, int]:
    """The last of each device."""
    return {device: (seqs(events, device) or [0])[-1] for device in DEVICES}


async def test_what_is_not_allowed_is_refused(running: Server, feed: Feed) -> None:
    refused: list[dict[str, Any]] = [
        {"slow": "drop"},
        {"slow_after": "4"},
        {"slow": "skip", "wait": 1},
    ]
    for query in refused:
        async with open_stream(running.url, feed.name, **query) as stream:
            assert stream.status == 400
    url = f"{running.url}/v1/streams/{feed.name}/events"
    answer = httpx.post(url, json={"slow": "drop"}, timeout=PATIENCE_S)
    assert answer.status_code == 400
    assert "expected wait, conflate, skip or end" in answer.json()["detail"]


@pytest.mark.long
async def test_a_socket_without_credits_is_moved_as_it_asked(
    running: Server, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=1)
    feed.send()
    async with talk(running) as socket:
        words = {"streams": [feed.name], "slow_after": 5, "from_": "earliest"}
        before = acts(running, "conflate")
        for name in ("skip", "conflate", "end", "wait"):
            await socket.say("subscribe", name, slow=name, credits=1, **words)
        for _ in range(4):
            await socket.until("events")
        feed.send(frames=9)
        feed.send("dev-2", frames=3)
        gap = await socket.until("gap")
        assert gap["id"] == "skip"
        assert gap["data"]["reason"] == "slow"
        ended = next((m for m in socket.heard if m["type"] == "end"), None)
        ended = ended or await socket.until("end")
        assert (ended["id"], ended["reason"], ended["policy"]) == ("end", "slow", "end")
        feed.send()  # 11 of dev-1
        await socket.say("credit", "skip", credits=5)
        assert places(await socket.take(1, "skip")) == [("dev-1", 11)]
        await eventually(lambda: acts(running, "conflate") > before, "it is conflated")
        rows: list[dict[str, Any]] = []
        while not {("dev-1", 11), ("dev-2", 3)} <= set(places(rows)):
            await socket.say("credit", "conflate", credits=1)
            rows += (more := await socket.take(1, "conflate"))
            assert len(more) == 1, "no more than it has credits for"
        left_out = sum(m.get("superseded", 0) for m in socket.heard)
        assert len(rows) + left_out == 13, "each is counted once"
        assert left_out > 0
        await socket.say("credit", "conflate", credits=5)
        feed.send(frames=2)
        again = await socket.take(2, "conflate")
        assert places(again) == [("dev-1", 12), ("dev-1", 13)], "every event again"
        await socket.say("credit", "wait", credits=20)
        assert len(places(await socket.take(15, "wait"))) == 15, "the control: it has waited"
        problem = (await ask(socket, slow="drop"))["detail"]
        assert "expected wait, conflate, skip or end" in problem
    for cursor, seq in ((ended["cursor"], 2), (gap["cursor"], 11), (rows[-1]["cursor"], 12)):
        assert await first_seq(running, feed, cursor) == seq


@pytest.mark.long
async def test_what_is_done_about_a_slow_reader_changes_while_it_is_open(
    running: Server, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=1)
    feed.send()
    async with talk(running) as socket:
        words = {"streams": [feed.name], "from_": "earliest", "slow": "wait", "credits": 1}
        for name in ("changed", "kept"):
            await socket.say("subscribe", name, **words)
            await socket.take(1, name)
        await socket.say("change", "changed", slow="drop")
        assert "expected wait, conflate" in (await socket.until("problem"))["detail"]
        await socket.say("change", "changed", slow="skip", slow_after=5)
        assert (await socket.until("changed"))["id"] == "changed"
        feed.send(frames=9)
        gap = await socket.until("gap")
        assert (gap["id"], gap["data"]["reason"]) == ("changed", "slow")
        for name in ("changed", "kept"):
            await socket.say("credit", name, credits=20)
        assert len(await socket.take(9, "kept")) == 9, "the control: it has waited"
        feed.send()
        assert places(await socket.take(1, "changed")) == [("dev-1", 11)]


def acts(running: Server, policy: str) -> float:
    """How often something was done about a slow reader."""
    text = httpx.get(f"{running.url}/metrics", timeout=PATIENCE_S).text
    pattern = rf'edgewake_access_slow_acts_total{{policy="{policy}"}} ([\d.]+)'
    return sum(map(float, re.findall(pattern, text)))


async def ask(socket: Any, **words: Any) -> dict[str, Any]:
    await socket.say("subscribe", "wrong", streams=["x"], **words)
    found: dict[str, Any] = await socket.until("problem")
    return found
