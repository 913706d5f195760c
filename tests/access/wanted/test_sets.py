"""Named sets: kept by operators at a terminal, used in filters, changed while streams are open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.access.sockets.talk import places as of_socket
from tests.access.sockets.talk import talk
from tests.access.wanted.conftest import Keeper
from tests.access.wanted.reading import places, posted
from tests.access.world import Server
from tests.feeds import Feed, eventually, unique
from tests.services import PATIENCE_S

pytestmark = pytest.mark.services


def rows_of(server: Server, feed: Feed, where: str) -> list[tuple[str, int]] | str:
    """A page of the past, or why there is none."""
    words: dict[str, Any] = {"where": where, "from": "earliest", "limit": 1000}
    path = f"{server.url}/v1/streams/{feed.name}/events"
    answer = httpx.get(path, params=words, timeout=PATIENCE_S)
    if answer.status_code != 200:
        return str(answer.json()["detail"])
    return places(answer.json()["events"])


async def test_a_set_is_followed_while_streams_are_open(
    keeper: Keeper, access_a: Server, new_feed: Callable[..., Feed]
) -> None:
    """By stream and socket, found by the index and, where it cannot rule out, tried; every event of
    who stays in it comes once.
    """
    feed, north = new_feed(partitions=2), unique("north")
    keeper.keep("set", north, members=["a", "b"], description="the northern ones")
    await eventually(lambda: not isinstance(rows_of(access_a, feed, within(north)), str), "known")
    path = f"/v1/streams/{feed.name}/events"
    async with (
        posted(access_a.url, path, {"where": f"n > 0 AND {within(north)}"}) as stream,
        posted(access_a.url, path, {"where": f"NOT device IN SET('{north}')"}) as others,
        talk(access_a) as socket,
    ):
        await stream.until(1, kind="checkpoint")
        await others.until(1, kind="checkpoint")
        await socket.say("subscribe", streams=[feed.name], where=within(north))
        await socket.until("subscribed")
        for device in ("a", "b", "c"):
            feed.send(device)
        assert sorted(places(await stream.until(2))) == [("a", 1), ("b", 1)]
        assert keeper.run("set", "add", north, "c").returncode == 0
        removed = keeper.run("set", "remove", north, "b")
        assert "version 3, 2 members" in removed.stderr
        await eventually(
            lambda: rows_of(access_a, feed, within(north)) == [("a", 1), ("c", 1)], "followed"
        )
        for number in range(2, 40):
            for device in ("a", "b", "c"):
                feed.send(device)
            if {device for device, n in places(stream.of()) if n == number - 1} == {"a", "c"}:
                break
            await asyncio.sleep(0.1)
        feed.send("a")
        last = ("a", number + 1)
        await stream.have(last)
        seen = places(stream.of())
        assert [n for device, n in seen if device == "a"] == list(range(1, number + 2))
        assert [n for device, n in seen if device == "c"][-1] == number
        assert len(set(seen)) == len(seen)
        assert max(n for device, n in seen if device == "b") < number
        told: list[tuple[str, int]] = []
        while last not in told:
            told += of_socket(await socket.take(1))
        assert [n for device, n in told if device == "a"] == list(range(1, number + 2))
        await others.have(("b", number))


def within(name: str) -> str:
    return f"device IN SET('{name}')"


@pytest.mark.long
async def test_a_set_of_ten_thousand_is_shown_as_it_was_applied_and_bounds_are_said(
    keeper: Keeper, access_a: Server, feed: Feed
) -> None:
    name = unique("large")
    members = [f"car-{number}" for number in range(10_000)]
    keeper.keep("set", name, members=members)
    shown = keeper.run("set", "show", name)
    assert keeper.apply(
        "set", {name: httpx.Response(200, text=shown.stdout).json()[name]}
    ).stderr == (f"{name}: version 1, 10000 members\n"), "the same again changes nothing"
    feed.send("car-9999")
    feed.send("car-10000")
    await eventually(lambda: rows_of(access_a, feed, within(name)) == [("car-9999", 1)], "known")
    many = keeper.apply("set", {name: {"members": [*members, "one"]}})
    assert (many.returncode, "10,000" in many.stderr) == (1, True), many.stderr
    assert name in keeper.run("set", "list").stdout
    conflict = keeper.ops.client.put(f"/v1/sets/{name}?version=7", json={"members": []})
    assert (conflict.status_code, "version 1 now" in conflict.text) == (409, True)


async def test_a_set_that_is_removed_passes_nothing_and_opens_nothing(
    keeper: Keeper, access_a: Server, feed: Feed
) -> None:
    name = unique("gone")
    keeper.keep("set", name, members=["a"])
    await eventually(lambda: not isinstance(rows_of(access_a, feed, within(name)), str), "known")
    path = f"/v1/streams/{feed.name}/events"
    async with posted(access_a.url, path, {"where": f"{within(name)} OR n = 3"}) as stream:
        await stream.until(1, kind="checkpoint")
        feed.send("a")
        assert places(await stream.until(1)) == [("a", 1)]
        assert keeper.run("set", "delete", name).returncode == 0
        await eventually(lambda: isinstance(rows_of(access_a, feed, within(name)), str), "gone")
        feed.send("a")
        feed.send("a")
        assert places(await stream.until(2)) == [("a", 1), ("a", 3)]
    assert (
        rows_of(access_a, feed, within(name)) == f"where: SET({name!r}): no set is named {name!r}"
    )


@pytest.mark.parametrize(
    ("thing", "table", "said"),
    [
        ("set", {"members": "a"}, "members"),
        ("set", {"devices": ["a"]}, "members: is missing"),
        ("publication", {"streams": []}, "streams"),
        ("publication", {"streams": ["s"], "where": "n >"}, "at character"),
        ("publication", {"streams": ["s"], "where": "n IN SET('none_such')"}, "no set is named"),
        ("publication", {"streams": ["down_answers"]}, "for operators alone"),
        ("publication", {"streams": ["s"], "limits": {"rate": 1}}, "rate"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(
    keeper: Keeper, thing: str, table: dict[str, Any], said: str
) -> None:
    done = keeper.apply(thing, {"wrong": table})
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
