"""WebSockets on real servers and Kafka: the cursor that all protocols share, credits, changes while
open, several subscriptions on one socket, and the end of a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.sockets.talk import places, talk
from tests.access.world import Server, open_stream, server
from tests.feeds import DEADLINE_S, Feed, QueryFeed

pytestmark = pytest.mark.services


async def test_a_client_goes_from_a_stream_to_a_socket_to_a_page_and_back(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed]
) -> None:
    """Cut inside frames of many readings, on two servers: every event once, in order."""
    feed = new_feed(partitions=3)
    for device in ("a", "b", "c"):
        feed.send(device, 9, frames=30)
    seen: list[tuple[str, int]] = []
    cursor = ""
    async with open_stream(access_a.url, feed.name, from_="earliest") as stream:
        for event in await stream.take(100):
            seen.append((orjson.loads(event.data)["device"], int(orjson.loads(event.data)["n"])))
            cursor = event.id
    for number, where in enumerate((access_b, access_a, access_b)):
        async with talk(where) as socket:
            await socket.say("subscribe", streams=[feed.name], after=cursor, credits=101 + number)
            events = await socket.take(101 + number)
            seen += places(events)
            cursor = events[-1]["cursor"]
        async with httpx.AsyncClient(base_url=access_a.url, timeout=DEADLINE_S) as client:
            path = f"/v1/streams/{feed.name}/events"
            page = (await client.get(path, params={"after": cursor, "limit": 53})).json()
        seen += [(event["device"], int(event["n"])) for event in page["events"]]
        cursor = page["cursor"]
    async with open_stream(access_b.url, feed.name, cursor=cursor) as stream:
        rest = await stream.take(3 * 270 - len(seen))
    seen += [(orjson.loads(e.data)["device"], int(orjson.loads(e.data)["n"])) for e in rest]
    assert sorted(seen) == [(device, n) for device in ("a", "b", "c") for n in range(1, 271)]
    for device in ("a", "b", "c"):
        assert [n for one, n in seen if one == device] == list(range(1, 271))


async def test_credits_are_exact(access_a: Server, feed: Feed) -> None:
    """Never an event more than allowed, also within a frame of many readings; all in the end."""
    feed.send(n=50, frames=4)
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest", credits=0)
        opened = await socket.until("subscribed")
        assert (opened["start"], opened["credits"]) == ("earliest", 0)
        got: list[tuple[str, int]] = []
        for allowed in (1, 7, 60, 2):
            await socket.say("credit", credits=allowed)
            got += places(await socket.take(allowed))
            await socket.socket.ping()
            assert len(got) == sum(len(m["events"]) for m in socket.heard if m["type"] == "events")
        told = await socket.until("behind")  # so nothing more came for a second
        assert len(got) == 70
        assert (told["credits"], told["waits_for"]) == (0, "credit")
        assert told["records"] > 0
        await socket.say("credit", credits=1000)
        got += places(await socket.take(130))
        assert got == [("dev-1", n) for n in range(1, 201)]


async def test_a_client_without_credits_is_told_how_far_it_is_behind(
    access_a: Server, feed: Feed
) -> None:
    feed.send()
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest", credits=1)
        await socket.take(1)
        feed.send(frames=5)
        first = await socket.until("behind")
        assert first["records"] >= 5
        assert first["seconds"] >= 0
        await socket.say("credit", credits=5)
        assert places(await socket.take(5))[-1] == ("dev-1", 6)


async def test_several_subscriptions_come_and_go_on_one_socket(
    access_a: Server, new_feed: Callable[..., Feed], query_feed: QueryFeed
) -> None:
    one, two = new_feed(), new_feed()
    one.send(n=3)
    two.send(n=3)
    query_feed.batch(1, [{"device": "a", "window_start": 0, "value": 1}], 10_000)
    async with talk(access_a) as socket:
        await socket.say("subscribe", "one", streams=[one.name], from_="earliest")
        await socket.say("subscribe", "two", streams=[two.name], from_="earliest", where="n > 2")
        await socket.say("subscribe", "q", streams=[query_feed.name], from_="earliest")
        assert len(await socket.take(3, "one")) == 3
        both = [m for m in socket.heard if m["type"] == "events"]
        while {m["id"] for m in both} != {"one", "two", "q"}:
            both.append(await socket.until("events"))
        assert places([e for m in both if m["id"] == "two" for e in m["events"]]) == [("dev-1", 3)]
        results = [e for m in both if m["id"] == "q" for e in m["events"]]
        if len(results) < 2:
            results += await socket.take(1, "q")
        assert [e.get("event") for e in results] == [None, "watermark"]
        await socket.say("unsubscribe", "one")
        end = await socket.until("end")
        assert (end["id"], end["reason"]) == ("one", "unsubscribed")
        one.send()
        two.send()
        assert places(await socket.take(1, "two")) == [("dev-1", 4)]
        assert not [m for m in socket.heard if m["type"] == "events" and m["id"] == "one"][3:]
        await socket.say("subscribe", "one", streams=[one.name], after=end["cursor"])
        assert places(await socket.take(1, "one")) == [("dev-1", 4)]


async def test_a_filter_changes_while_open_from_a_cursor_that_is_told(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    feed, other = new_feed(partitions=1), new_feed(partitions=1)
    feed.send(n=20)
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest", credits=10)
        before = await socket.take(10)
        await socket.say("change", where="n % 2 = 0", select="device, n")
        changed = await socket.until("changed")
        await socket.say("credit", credits=100)
        after = await socket.take(5)
        assert places(before + after) == [("dev-1", n) for n in (*range(1, 11), 12, 14, 16, 18, 20)]
        assert set(after[0]["data"]) == {"device", "n"}
        assert not [m for m in socket.heard if m["type"] == "gap"], "it asked for it"
        await socket.say("change", streams=[feed.name, other.name], where=None, from_="earliest")
        gap = await socket.until("gap")
        assert (gap["data"]["reason"], gap["data"]["stream"]) == ("stream_added", other.name)
        other.send("x", 2)
        feed.send(n=1)
        assert sorted(places(await socket.take(3))) == [("dev-1", 21), ("x", 1), ("x", 2)]
    async with open_stream(access_a.url, feed.name, cursor=changed["cursor"]) as stream:
        first = orjson.loads((await stream.take(1))[0].data)
    assert first["n"] == 11, "the change holds from the cursor that was told"


async def test_a_change_that_cannot_be_leaves_all_as_it_was(access_a: Server, feed: Feed) -> None:
    feed.send(n=3)
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest", credits=2)
        await socket.take(2)
        await socket.say("change", where="n >")
        problem = await socket.until("problem")
        assert (problem["id"], problem["code"]) == ("a", "filter")
        await socket.say("change", streams=["never_there"])
        problem = await socket.until("problem")
        assert (problem["code"], problem["where"]) == ("unknown_stream", "streams")
        await socket.say("credit", credits=5)
        assert places(await socket.take(1)) == [("dev-1", 3)]


async def test_a_gap_of_retention_is_told_and_gone_on_behind(
    access_b: Server, new_feed: Callable[..., Feed], access_a: Server
) -> None:
    feed = new_feed(partitions=1)
    feed.send(frames=5)
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest", credits=1)
        cursor = (await socket.take(1))[0]["cursor"]
    feed.trim(0, 4)  # what access_a has in memory it still shows; access_b has never read it
    async with talk(access_b) as socket:
        await socket.say("subscribe", streams=[feed.name], after=cursor)
        gap = await socket.until("gap")
        assert (gap["data"]["reason"], gap["data"]["continues"]) == ("retention", "earliest")
        assert places(await socket.take(1)) == [("dev-1", 5)]
        await socket.say("subscribe", "b", streams=[feed.name], after=cursor, on_gap="stop")
        end = await socket.until("end")
        assert (end["id"], end["reason"]) == ("b", "gap")


async def test_a_killed_server_loses_nothing_and_repeats_nothing(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    access_b: Server,
    feed: Feed,
) -> None:
    seen: list[tuple[str, int]] = []
    with server(access_directory, kafka_config, cursor_key) as first:
        feed.send(n=5, frames=4)
        async with talk(first) as socket:
            await socket.say("subscribe", streams=[feed.name], from_="earliest", credits=13)
            events = await socket.take(13)
            first.process.kill()
            assert (await socket.until_closed())[0] == 1006
    seen += places(events)
    feed.send(n=5)
    async with talk(access_b) as socket:
        await socket.say("subscribe", streams=[feed.name], after=events[-1]["cursor"])
        seen += places(await socket.take(12))
    assert seen == [("dev-1", n) for n in range(1, 26)]


@pytest.mark.long
async def test_a_server_that_stops_says_so_and_where_to_go_on(
    access_directory: Path,
    kafka_config: KafkaConfig,
    cursor_key: Path,
    access_b: Server,
    feed: Feed,
) -> None:
    with server(access_directory, kafka_config, cursor_key) as first:
        feed.send(n=3)
        async with talk(first) as socket:
            await socket.say("subscribe", streams=[feed.name], from_="earliest", credits=2)
            await socket.take(2)
            stopping = asyncio.create_task(asyncio.to_thread(first.process.stop))
            end = await socket.until("end")
            assert end["reason"] == "server_stops"
            assert (await socket.until_closed())[0] == 1012
            assert await stopping == 0
    async with talk(access_b) as socket:
        await socket.say("subscribe", streams=[feed.name], after=end["cursor"])
        assert places(await socket.take(1)) == [("dev-1", 3)]


async def test_progress_without_events_is_told_and_silence_is_no_death(
    access_a: Server, feed: Feed
) -> None:
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], where="n > 1000")
        start = (await socket.until("subscribed"))["cursor"]
        assert (await socket.until("heartbeat"))["at"] > 0
        feed.send(n=3)
        moved = await socket.until("checkpoint")
        assert moved["cursor"] != start
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], after=moved["cursor"])
        feed.send(n=1)
        assert places(await socket.take(1)) == [("dev-1", 4)]


@pytest.mark.parametrize(
    ("words", "code", "where"),
    [
        ({"streams": ["never_there"]}, "unknown_stream", "streams"),
        ({"streams": ["down_answers"]}, "unknown_stream", "streams"),
        ({"where": "n >"}, "filter", "where, select"),
        ({"after": "v2.garbage"}, "cursor_malformed", "after"),
        ({"from_": "yesterday"}, "from", "from"),
        ({"from_": 5}, "from", "from"),
        ({"on_gap": "maybe"}, "on_gap", "on_gap"),
        ({"credits": -1}, "invalid", "credits"),
        ({"credits": True}, "invalid", "credits"),
        ({"streams": []}, "invalid", "streams"),
        ({"streams": "x"}, "invalid", "streams"),
        ({"wher": "n > 1"}, "invalid", "wher"),
    ],
)
async def test_what_is_wrong_is_said_with_its_place_and_the_socket_goes_on(
    access_a: Server, feed: Feed, words: dict[str, Any], code: str, where: str
) -> None:
    async with talk(access_a) as socket:
        await socket.say("subscribe", **{"streams": [feed.name], **words})
        problem = await socket.until("problem")
        assert (problem["id"], problem["where"]) == ("a", where)
        assert problem["code"].startswith(code.partition("_malformed")[0])
        await socket.say("subscribe", streams=[feed.name])
        assert (await socket.until("subscribed"))["start"] == "latest"


async def test_an_id_is_one_subscriptions(access_a: Server, feed: Feed) -> None:
    async with talk(access_a) as socket:
        await socket.say("credit", credits=1)
        assert (await socket.until("problem"))["code"] == "unknown_id"
        await socket.say("subscribe", streams=[feed.name])
        await socket.say("subscribe", streams=[feed.name])
        assert (await socket.until("problem"))["code"] == "id_in_use"
        await socket.say("unsubscribe")
        assert (await socket.until("end"))["reason"] == "unsubscribed"
