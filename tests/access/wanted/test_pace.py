"""Conflation and bounded rates: cursors stay exact, whoever is cut off, and what later events took
the place of is counted.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.access.sockets.talk import talk
from tests.access.wanted.reading import places, posted
from tests.access.world import Server
from tests.feeds import DEADLINE_S, Feed

pytestmark = pytest.mark.services
DEVICES = tuple(f"d-{number}" for number in range(8))


async def writing(feed: Feed, rounds: int) -> None:
    """Every device's next readings, again and again."""
    for _ in range(rounds):
        for device in DEVICES:
            await asyncio.to_thread(feed.send, device, 3)


async def test_of_each_device_the_latest_comes_however_often_the_reader_is_cut_off(
    access_a: Server, access_b: Server, new_feed: Callable[..., Feed]
) -> None:
    """Cut anywhere, in the middle of what is given at once, too: nothing comes twice, and the last
    of each device comes.
    """
    feed, rng = new_feed(partitions=3), random.Random(7)
    path = f"/v1/streams/{feed.name}/events"
    last = dict.fromkeys(DEVICES, 90)
    seen: dict[str, list[int]] = {device: [] for device in DEVICES}
    cursor, connections, conflated = "", 0, 0
    write = asyncio.create_task(writing(feed, 30))
    try:
        async with asyncio.timeout(2 * DEADLINE_S):
            while {device: rows[-1] for device, rows in seen.items() if rows} != last:
                connections += 1
                base = rng.choice((access_a, access_b)).url
                words: dict[str, Any] = {"conflate": 60, "from": "earliest"}
                headers = {"Last-Event-ID": cursor} if cursor else {}
                async with posted(base, path, words, **headers) as stream:
                    await stream.until(1)
                    await asyncio.sleep(rng.random() / 10)
                    data = [one for one in stream.heard if one.type == "message"]
                    kept = data[: rng.randint(1, len(data))]  # cut in what was given at once
                    conflated += sum(row["superseded"] for row in stream.of("conflated"))
                for device, n in places([row for row, _ in zip(stream.of(), kept, strict=False)]):
                    seen[device].append(n)
                cursor = kept[-1].id
    finally:
        write.cancel()
        await asyncio.wait([write])
    assert connections > 3
    assert conflated > 0, "it was conflated at all"
    assert all(rows == sorted(set(rows)) for rows in seen.values()), seen


async def test_what_others_took_the_place_of_is_counted_to_the_last(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=2)
    path = f"/v1/streams/{feed.name}/events"
    before = superseded(access_a)
    async with posted(access_a.url, path, {"conflate": 100}) as stream, talk(access_a) as socket:
        await stream.until(1, kind="checkpoint")
        await socket.say("subscribe", streams=[feed.name], conflate=150, credits=3)
        await socket.until("subscribed")
        await writing(feed, 5)
        await socket.say("credit", credits=1000)
        for read in (stream.of, None):
            total = 0
            async with asyncio.timeout(DEADLINE_S):
                while total < 5 * 3 * len(DEVICES):
                    if read is None:
                        await socket.until("events")
                        heard = [m for m in socket.heard if m["type"] == "events"]
                        total = sum(len(m["events"]) + m.get("superseded", 0) for m in heard)
                    else:
                        await asyncio.sleep(0.05)
                        assert not stream.has_ended
                        told = sum(row["superseded"] for row in stream.of("conflated"))
                        total = len(stream.of()) + told
            assert total == 5 * 3 * len(DEVICES)
        last = dict(places(stream.of()))
        assert last == dict.fromkeys(DEVICES, 15)
        events = [e for m in socket.heard if m["type"] == "events" for e in m["events"]]
        assert {e["data"]["device"]: e["data"]["n"] for e in events} == last
        told = {
            "stream": sum(row["superseded"] for row in stream.of("conflated")),
            "socket": sum(m.get("superseded", 0) for m in socket.heard if m["type"] == "events"),
        }
    words: dict[str, Any] = {"conflate": 1000, "from": "earliest", "limit": 1000}
    page = httpx.get(access_a.url + path, params=words, timeout=DEADLINE_S).json()
    told["page"] = page["superseded"]
    after = superseded(access_a)
    assert {how: after[how] - before.get(how, 0) for how in told} == told
    assert all(told.values())


def superseded(of: Server) -> dict[str, int]:
    """What the server's metrics say was left out, by how it was read."""
    text = httpx.get(f"{of.url}/metrics", timeout=DEADLINE_S).text
    found = re.findall(r'^edgewake_access_superseded_total\{how="(\w+)"\} (\S+)$', text, re.M)
    return {how: int(float(count)) for how, count in found}


async def test_within_an_interval_a_thing_comes_once_and_after_a_pause_at_once(
    access_a: Server, feed: Feed
) -> None:
    path = f"/v1/streams/{feed.name}/events"
    async with posted(access_a.url, path, {"conflate": 1000}) as stream:
        await stream.until(1, kind="checkpoint")
        began = time.monotonic()
        feed.send("a")
        await stream.until(1)
        assert time.monotonic() - began < 0.9, "what comes after a pause does not wait"
        feed.send("a", 3)
        feed.send("b", 2)
        await stream.until(3)
        assert time.monotonic() - began > 0.9
        assert places(stream.of()) == [("a", 1), ("a", 4), ("b", 2)]


async def test_per_says_what_a_thing_is(access_a: Server, feed: Feed, ask: Any) -> None:
    lines: dict[str, list[Any]] = {
        "line": ["x", "y", "x", "y", "z"],
        "n": [1.0, 2.0, 3.0, 4.0, 5.0],
    }
    feed.send("a", 5, fields=lines)
    body = {"conflate": 500, "per": "line", "from": "earliest", "limit": 50}
    found = ask(access_a.url, f"/v1/streams/{feed.name}/events", body).json()
    assert [row["n"] for row in found["events"]] == [3, 4, 5]
    assert found["superseded"] == 2
    plain = ask(access_a.url, f"/v1/streams/{feed.name}/events", {**body, "per": "device"}).json()
    assert ([row["n"] for row in plain["events"]], plain["superseded"]) == ([5], 4)


async def test_a_page_with_conflation_holds_so_many_things(
    access_a: Server, feed: Feed, ask: Any
) -> None:
    for _ in range(3):
        for device in DEVICES:
            feed.send(device, 5)
    body: dict[str, Any] = {"conflate": 500, "from": "earliest", "limit": 5}
    last: dict[str, int] = {}
    told = 0
    for _ in range(40):
        page = ask(access_a.url, f"/v1/streams/{feed.name}/events", body).json()
        last |= dict(places(page["events"]))
        told += len(page["events"]) + page.get("superseded", 0)
        body["after"] = page["cursor"]
        if page["live"]:
            break
    assert last == dict.fromkeys(DEVICES, 15)
    assert told == 3 * 5 * len(DEVICES)


async def test_no_more_than_max_rate_come_and_none_is_left_out(
    access_a: Server, feed: Feed
) -> None:
    feed.send("a", 60)
    path = f"/v1/streams/{feed.name}/events"
    body = {"max_rate": 20, "from": "earliest"}
    async with posted(access_a.url, path, body) as stream:
        began = time.monotonic()
        await stream.until(1)
        arrived: list[float] = []
        while len(stream.of()) < 60:
            await stream.until(len(stream.of()) + 1)
            arrived += [time.monotonic() - began] * (len(stream.of()) - len(arrived))
        assert places(stream.of()) == [("a", n) for n in range(1, 61)]
        assert all(n <= 1 + 20 * (at + 1.05) for n, at in enumerate(arrived, 1)), arrived
        assert arrived[-1] > 1.5
    async with talk(access_a) as socket:
        began = time.monotonic()
        await socket.say("subscribe", streams=[feed.name], from_="earliest", max_rate=20)
        assert len(await socket.take(60)) == 60
        assert time.monotonic() - began > 1.5
