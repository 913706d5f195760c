"""Who subscribes to what is not there yet, and asks to wait, has it from its first reading on; who
does not ask is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import orjson
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.downlink.downlink import ANSWERS
from tests.access.world import Event, Server, Stream, numbers, open_stream, server
from tests.feeds import DEADLINE_S, Feed, unique
from tests.services import PATIENCE_S


async def until_heartbeat(stream: Stream) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not bytes(stream.raw).endswith(b":\n"):
            piece = await stream.chunk()
            assert piece is not None, "a stream that waits does not end"
            stream.raw += piece
            stream.parser.feed(piece)


async def test_a_stream_that_is_not_there_yet_is_waited_for_from_its_first_reading(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    name = unique("unborn")
    async with open_stream(access_a.url, name, absent="wait") as stream:
        assert (stream.status, stream.headers["edgewake-start"]) == (200, "waiting")
        await until_heartbeat(stream)
        feed = await asyncio.to_thread(new_feed, name=name)
        await asyncio.to_thread(feed.send, n=3)
        assert numbers(await stream.take(3)) == [("dev-1", n) for n in (1, 2, 3)]
        cursor = stream.parser.last_event_id
    await asyncio.to_thread(feed.send)
    async with open_stream(access_a.url, name, absent="wait", cursor=cursor) as again:
        assert numbers(await again.take(1)) == [("dev-1", 4)]


async def test_streams_that_are_there_flow_and_go_on_without_hole_or_repeat_when_another_comes(
    access_a: Server, feed: Feed, new_feed: Callable[..., Feed]
) -> None:
    name = unique("unborn")
    got: list[Event] = []
    async with open_stream(access_a.url, feed.name, name, absent="wait") as stream:
        await stream.until_cursor()
        for _ in range(3):
            await asyncio.to_thread(feed.send, "old")
        got += await stream.take(3)
        other = await asyncio.to_thread(new_feed, name=name)
        await asyncio.to_thread(other.send, "new", 2)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.to_thread(lambda: [feed.send("old") for _ in range(20)]))
            got += await stream.take(23, kinds=frozenset({"message", "gap"}))
    (added,) = [orjson.loads(event.data) for event in got if event.type == "gap"]
    assert (added["reason"], added["stream"], added["continues"]) == (
        "stream_added",
        name,
        "earliest",
    )
    events = numbers([event for event in got if event.type == "message"])
    assert [n for device, n in events if device == "old"] == list(range(1, 24))
    assert [n for device, n in events if device == "new"] == [1, 2]


async def test_without_the_word_it_is_refused_and_a_name_that_can_never_be_is_refused_always(
    access_a: Server,
) -> None:
    async with httpx.AsyncClient(base_url=access_a.url, timeout=PATIENCE_S) as client:
        assert (await client.get(f"/v1/events?stream={unique('unborn')}")).status_code == 404
        assert (await client.get("/v1/events?stream=No-Stream&absent=wait")).status_code == 404
        assert (await client.get("/v1/events?stream=s&absent=wait&where=n(")).status_code == 422


@pytest.mark.long
async def test_what_nobody_may_read_is_waited_for_as_what_never_comes(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path, feed: Feed
) -> None:
    hidden = Feed(kafka_config, name=ANSWERS)
    hidden.send(n=2)
    hidden.close()
    with server(access_directory, kafka_config, cursor_key, heartbeat_s=1) as other:
        async with open_stream(other.url, ANSWERS, feed.name, absent="wait") as stream:
            await stream.until_cursor()
            feed.send("seen")
            events = await stream.take(1)
            for _ in range(3):
                await until_heartbeat(stream)
                stream.raw.clear()
            assert numbers(events) == [("seen", 1)]


@pytest.mark.long
async def test_a_stop_ends_those_who_wait(
    access_directory: Path, kafka_config: KafkaConfig, cursor_key: Path
) -> None:
    with server(access_directory, kafka_config, cursor_key) as mortal:
        async with open_stream(mortal.url, unique("unborn"), absent="wait") as stream:
            await stream.chunk()
            async with asyncio.timeout(5):
                await asyncio.to_thread(mortal.process.stop)
                assert b"retry: " in (await stream.chunk() or b"")
                assert await stream.chunk() is None


@pytest.mark.parametrize("checkpoint", ["event", pytest.param("id", marks=pytest.mark.long)])
async def test_signs_of_life_are_events_where_they_are_asked_for(
    access_a: Server, feed: Feed, checkpoint: str
) -> None:
    async with open_stream(access_a.url, feed.name, beat="event", checkpoint=checkpoint) as stream:
        cursor = await stream.until_cursor()
        beats = await stream.take(2, kinds=frozenset({"heartbeat"}))
        assert all(orjson.loads(beat.data)["at"] > 1_700_000_000_000 for beat in beats)
        assert [beat.id for beat in beats] == [cursor] * 2, "nothing moved"
    async with open_stream(access_a.url, unique("unborn"), beat="event", absent="wait") as stream:
        assert len(await stream.take(1, kinds=frozenset({"heartbeat"}))) == 1
