"""A subscription of a socket that is changed while events come: exact, event by event."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.access.sockets.talk import talk
from tests.access.world import Server
from tests.feeds import Feed
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.services
CHOICES: tuple[tuple[dict[str, Any], Callable[[str, int], bool]], ...] = (
    ({"where": None, "devices": None, "sample": None}, lambda _device, _n: True),
    ({"where": "n % 2 = 0", "devices": None}, lambda _device, n: n % 2 == 0),
    ({"where": None, "devices": ["d-0", "d-1"]}, lambda device, _n: device in ("d-0", "d-1")),
    (
        {"where": "device = 'd-2' AND n % 3 = 0", "devices": None},
        lambda device, n: device == "d-2" and n % 3 == 0,
    ),
)


async def test_every_event_is_judged_by_the_filter_of_its_place_and_by_no_other(
    access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    """Forty changes while a writer writes: what came between two of them is exactly what the filter
    between them shows of what lies between their cursors.
    """
    feed, rng = new_feed(partitions=2), random.Random(3)
    told: list[tuple[int, str, list[dict[str, Any]]]] = []
    """Of each change: which filter, its cursor, and the events until the next one."""

    async def write() -> None:
        for number in range(120):
            await asyncio.to_thread(feed.send, f"d-{number % 4}", 5)

    writing = asyncio.create_task(write())
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest")
        told.append((0, (await socket.until("subscribed"))["cursor"], []))
        for _ in range(40):
            which = rng.randrange(len(CHOICES))
            await socket.say("change", **CHOICES[which][0])
            while (heard := await socket.hear())["type"] != "changed":
                told[-1][2].extend(heard.get("events", []))
            told.append((which, heard["cursor"], []))
            await asyncio.sleep(rng.random() / 20)
        await writing
        await socket.say("change", where=None, devices=None)
        while (heard := await socket.hear())["type"] != "changed":
            told[-1][2].extend(heard.get("events", []))
        told.append((0, heard["cursor"], []))
        assert not [m for m in socket.heard if m["type"] in ("gap", "problem")]
    path = f"{access_a.url}/v1/streams/{feed.name}/events"
    first = told[0][1]
    await asyncio.to_thread(wait_until, lambda: len(rest(path, first)) == 600, "all are there")
    after = {cursor: rest(path, cursor) for _, cursor, _ in told}
    for (which, begin, events), (_, end, _) in itertools.pairwise(told):
        between = after[begin] - after[end]
        shows = CHOICES[which][1]
        assert {(e["data"]["device"], int(e["data"]["n"])) for e in events} == {
            one for one in between if shows(*one)
        }
        assert after[end] <= after[begin]
        assert len(events) == len({e["cursor"] for e in events})
    assert len(after[first]) == 600


def rest(path: str, cursor: str) -> set[tuple[str, int]]:
    """All that lies behind a cursor: a page may end before the end where the server is busy."""
    rows: list[dict[str, Any]] = []
    is_live = False
    while not is_live:
        words: dict[str, Any] = {"after": cursor, "limit": 10_000}
        page = httpx.get(path, params=words, timeout=PATIENCE_S).json()
        rows += page["events"]
        cursor, is_live = page["cursor"], page["live"]
    return {(row["device"], int(row["n"])) for row in rows if "$event" not in row}


async def test_the_cursor_of_a_change_is_bound_to_the_new_filter(
    access_a: Server, feed: Feed
) -> None:
    feed.send("a", 10)
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest", credits=4)
        await socket.take(4)
        await socket.say("change", where="n > 5", devices=["a", "b"], conflate=20)
        changed = await socket.until("changed")
    for devices, gaps in ((["b", "a"], 0), (["a"], 1)):
        body = {"where": "n > 5", "devices": devices, "after": changed["cursor"], "limit": 50}
        path = f"{access_a.url}/v1/streams/{feed.name}/events"
        rows = httpx.post(path, json=body, timeout=PATIENCE_S).json()["events"]
        assert [row["reason"] for row in rows if "$event" in row] == ["filter_changed"] * gaps
        assert [row["n"] for row in rows if "$event" not in row] == [6, 7, 8, 9, 10]


async def test_streams_give_way_to_a_publication_and_the_other_way_round(
    access_a: Server, feed: Feed
) -> None:
    feed.send("a", 3)
    async with talk(access_a) as socket:
        await socket.say("subscribe", streams=[feed.name], from_="earliest")
        await socket.take(3)
        await socket.say("change", publication="never_there")
        problem = await socket.until("problem")
        assert (problem["code"], problem["where"]) == ("unknown_publication", "publication")
        await socket.say("change", devices=["a b"])
        problem = await socket.until("problem")
        assert (problem["code"], "device 1, 'a b'" in problem["detail"]) == ("devices", True)
        feed.send("a")
        assert (await socket.take(1))[0]["data"]["n"] == 4, "it goes on as it was"
        await socket.say("subscribe", "b", streams=[feed.name], publication="p")
        assert "expected no others" in (await socket.until("problem"))["detail"]
        await socket.say("subscribe", "c")
        assert "expected 1 to 16" in (await socket.until("problem"))["detail"]
