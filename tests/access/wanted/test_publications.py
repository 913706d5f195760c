"""Publications: what an operator put together is opened by its name alone, by every protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from edgewake.edge.client import Follower, Published
from tests.access.sockets.talk import talk
from tests.access.wanted.conftest import Keeper
from tests.access.wanted.reading import places, posted
from tests.access.world import Server
from tests.feeds import Feed, eventually, unique
from tests.services import PATIENCE_S

pytestmark = pytest.mark.services


def page(server: Server, name: str, **words: Any) -> httpx.Response:
    params: dict[str, Any] = {"from": "earliest", "limit": 100} | words
    path = f"{server.url}/v1/publications/{name}/events"
    return httpx.get(path, params=params, timeout=PATIENCE_S)


async def known(server: Server, name: str) -> None:
    await eventually(lambda: page(server, name).status_code == 200, "the publication is known")


async def test_it_is_read_by_stream_page_socket_and_follower_with_one_cursor(
    keeper: Keeper, access_a: Server, access_b: Server, new_feed: Callable[..., Feed]
) -> None:
    one, two, name = new_feed(), new_feed(), unique("depot")
    fields: dict[str, list[Any]] = {"n": [float(n) for n in range(1, 7)], "secret": ["x"] * 6}
    one.send("car-1", 6, fields=fields)
    two.send("car-2", 6, fields=fields)
    two.send("bus-1", 6, fields=fields)
    keeper.keep(
        "publication",
        name,
        streams=[one.name, two.name],
        where="secret = 'x' AND starts_with(device, 'car')",
        fields=["n"],
    )
    await known(access_a, name)
    await known(access_b, name)
    path = f"/v1/publications/{name}/events"
    async with posted(access_a.url, path, {"from": "earliest"}) as stream:
        rows = (await stream.until(3))[:3]
        cursor = [one.id for one in stream.heard if one.type == "message"][2]
    answer = page(access_b, name, after=cursor, limit=3).json()
    rows += answer["events"]
    async with talk(access_a) as socket:
        await socket.say("subscribe", publication=name, after=answer["cursor"], credits=3)
        events = await socket.take(3)
        rows += [one["data"] for one in events]
    follower = Follower([access_b.url], Published(name), cursor=events[-1]["cursor"])
    async for received in follower.events():
        rows.append(dict(received.fields))
        if len(rows) == 12:
            break
    assert sorted(places(rows)) == [(f"car-{k}", n) for k in (1, 2) for n in range(1, 7)]
    assert {"secret" in row for row in rows} == {False}
    hidden = page(access_a, name, where="secret = 'x'").json()["events"]
    assert hidden == [], "a filter sees what is shown, and no more"
    narrowed = page(access_a, name, where="n > 5 AND device = 'car-2'").json()["events"]
    assert places(narrowed) == [("car-2", 6)]
    listed = httpx.get(f"{access_a.url}/v1/publications", timeout=PATIENCE_S).json()
    (told,) = [one for one in listed["publications"] if one["name"] == name]
    assert (told["fields"], told["streams"]) == (["n"], [one.name, two.name])
    assert "where" not in told


async def test_one_that_is_changed_ends_who_reads_it_and_goes_on_from_the_cursor(
    keeper: Keeper, access_a: Server, feed: Feed
) -> None:
    name = unique("changed")
    keeper.keep("publication", name, streams=[feed.name], where="n < 3")
    await known(access_a, name)
    feed.send("a", 4)
    path = f"/v1/publications/{name}/events"
    async with posted(access_a.url, path, {"from": "earliest"}) as stream:
        await stream.until(2)
        keeper.keep("publication", name, streams=[feed.name], where="n > 3")
        await stream.until_ended()
        assert places(stream.of()) == [("a", 1), ("a", 2)]
        cursor = stream.cursor
    feed.send("a", 2)
    await eventually(
        lambda: (
            places(page(access_a, name, after=cursor).json()["events"][1:])[-2:]
            == [("a", 5), ("a", 6)]
        ),
        "it goes on with the new filter",
    )
    first = page(access_a, name, after=cursor).json()["events"][0]
    assert (first["$event"], first["reason"]) == ("gap", "filter_changed")
    assert keeper.run("publication", "delete", name).returncode == 0
    await eventually(lambda: page(access_a, name).status_code == 404, "it is gone")
    near = page(access_a, name[:-1]).json()
    assert (near["type"].rpartition(":")[2], name in near["near"]) == ("unknown_publication", False)


async def test_its_limits_hold(keeper: Keeper, access_a: Server, feed: Feed) -> None:
    name = unique("limited")
    limits = {"readers_max": 1, "conflate_ms": 200}
    keeper.keep("publication", name, streams=[feed.name], limits=limits)
    await known(access_a, name)
    path = f"/v1/publications/{name}/events"
    async with posted(access_a.url, path, {"conflate": 20}) as stream:
        await stream.until(1, kind="checkpoint")
        second = httpx.get(access_a.url + path, timeout=PATIENCE_S)
        assert (second.status_code, "has 1 readers here" in second.text) == (503, True)
        feed.send("a", 50)
        assert places(await stream.until(1)) == [("a", 50)]
        (told,) = await stream.until(1, kind="conflated")
        assert told == {"superseded": 49}
    await eventually(lambda: page(access_a, name).status_code == 200, "its place is free")


def test_what_it_says_may_not_be_said_again(access_a: Server, ask: Any) -> None:
    answer = ask(access_a.url, "/v1/publications/nothing/events", {"streams": ["a"]})
    assert (answer.status_code, "streams" in answer.text) == (422, True)
