"""Rights at the door of WebSockets: who comes in, what each is shown, and the end of a right while
a socket is open.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.access.sockets.talk import Talk, talk
from tests.feeds import unique
from tests.rights.conftest import World
from tests.services import PATIENCE_S

pytestmark = pytest.mark.services

BEARERS = {"board": "board-key-00000001", "guest": "guest-key-00000001"}


def headers_of(world: World, who: str) -> dict[str, str]:
    """As whom a socket is opened."""
    bearer = BEARERS.get(who) or world.token()
    return {"Authorization": f"Bearer {bearer}"}


async def shown(world: World, who: str, bearer: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The query and the headers of a socket whose client shows a right in this way."""
    if who not in ("cookie", "ticket"):
        return "", bearer
    async with httpx.AsyncClient(base_url=world.server.url, timeout=PATIENCE_S) as client:
        if who == "cookie":
            begun = await client.post("/v1/session", headers=bearer)
            return "", {"Cookie": begun.headers["set-cookie"].partition(";")[0]}
        ticket = (await client.post("/v1/tickets", headers=bearer)).json()["ticket"]
        return f"?ticket={ticket}", {}


async def answered(socket: Talk, name: str) -> dict[str, Any]:
    """The answer to a subscription that is not there for a reader."""
    await socket.say("subscribe", streams=[name], from_="earliest")
    return await socket.until("problem")


@pytest.mark.parametrize("who", ["owner", "guest"])
async def test_what_is_forbidden_is_answered_as_what_is_not_there(
    rights_world: World, who: str
) -> None:
    world, absent = rights_world, unique("feed")
    forbidden = world.mine.name if who == "guest" else world.other.name
    async with talk(world.server, additional_headers=headers_of(world, who)) as socket:
        told = [
            re.sub(r'"near": \[[^]]*\]|; did you mean [^"?]*\?', "", json.dumps(answer)).replace(
                name, "NAME"
            )
            for name in (absent, forbidden)
            for answer in [await answered(socket, name)]
        ]
        assert told[0] == told[1]
        assert "unknown_stream" in told[0]


@pytest.mark.parametrize("who", ["owner", "cookie", "ticket", "board"])
async def test_what_is_allowed_is_shown_and_no_more(rights_world: World, who: str) -> None:
    world = rights_world
    query, headers = await shown(world, who, headers_of(world, who))
    sees_all = who == "board"
    async with talk(world.server, query, additional_headers=headers) as socket:
        await socket.say("subscribe", streams=[world.mine.name], from_="earliest")
        rows = [one["data"] for one in await socket.take(2 if sees_all else 1)]
        assert {row["device"] for row in rows} == ({"car-1", "car-2"} if sees_all else {"car-1"})
        assert {"secret" in row for row in rows} == {sees_all}
        where = "secret = 'x' OR device = 'car-2'"
        await socket.say("subscribe", "b", streams=[world.mine.name], from_="earliest", where=where)
        await socket.say("change", where=where)
        await socket.until("changed")
        world.mine.send("car-2", fields={"speed": [1.0], "secret": ["x"]})
        world.mine.send("car-1", fields={"speed": [2.0], "secret": ["x"]})
        await socket.say("subscribe", "c", streams=[world.mine.name], from_="earliest")
        await socket.take(1, "c")
        seen = [m for m in socket.heard if m["type"] == "events" and m["id"] == "b"]
        assert bool(seen) == sees_all
    if who == "ticket":
        with pytest.raises(InvalidStatus) as again:
            await talk(world.server, query).__aenter__()
        assert again.value.response.status_code == 401


@pytest.mark.parametrize(
    ("headers", "query", "status"),
    [
        ({}, "", 401),
        ({"Authorization": "Bearer nobodys-key-000001"}, "", 401),
        ({"Authorization": "Basic Ym9hcmQ="}, "", 401),
        ({}, "?ticket=made-up", 401),
        ({"Cookie": "edgewake_reader=nobodys-key-000001"}, "", 401),
    ],
)
async def test_who_proves_nothing_is_refused(
    rights_world: World, headers: dict[str, str], query: str, status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await talk(rights_world.server, query, additional_headers=headers).__aenter__()
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["status"] == status


@pytest.mark.parametrize("why", ["expired", "revoked"])
async def test_a_socket_ends_with_its_right_however_that_was_shown(
    rights_world: World, why: str
) -> None:
    """Within two seconds, with a word for each subscription; the control goes on."""
    world, ends, token_id = rights_world, time.time() + 4, unique("t")
    until = ends if why == "expired" else ends + 600
    bearer = {"Authorization": f"Bearer {world.token(jti=token_id, exp=until)}"}
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE_S):

        async def opened(who: str, headers: dict[str, str]) -> Talk:
            query, headers = await shown(world, who, headers)
            entered = talk(world.server, query, additional_headers=headers)
            socket = await stack.enter_async_context(entered)
            await socket.say("subscribe", streams=[world.mine.name])
            await socket.until("subscribed")
            return socket

        async def ended(socket: Talk) -> tuple[str, int, str, float]:
            end = await socket.until("end")
            assert end["cursor"].startswith("v2.")
            code, reason = await socket.until_closed()
            return end["reason"], code, reason, time.time()

        other = await opened("bearer", headers_of(world, "owner"))
        sockets = [await opened(who, bearer) for who in ("bearer", "cookie", "ticket")]
        try:
            if why == "revoked":
                ends = time.time()
                world.file("revoked", f"jti {token_id}\n")
            found = await asyncio.gather(*map(ended, sockets))
        finally:
            world.file("revoked", "")
        assert [(reason, code) for reason, code, _, _ in found] == [(why, 1008)] * 3
        assert all(why in told for _, _, told, _ in found)
        assert all(ends - 0.1 <= at < ends + 2.5 for *_, at in found)
        await other.say("subscribe", "b", streams=[world.mine.name])
        assert (await other.until("subscribed", "end"))["type"] == "subscribed"


async def test_a_name_of_one_is_nobody_elses(rights_world: World) -> None:
    """Two with a right to the same stream choose the same name."""
    world, name = rights_world, unique("worker")
    words = {"streams": [world.mine.name], "from_": "earliest", "name": name}
    async with talk(world.server, additional_headers=headers_of(world, "owner")) as socket:
        await socket.say("subscribe", **words)
        (event,) = (await socket.take(1))[:1]
        await socket.say("ack", cursor=event["cursor"])
        await socket.until("acked")
    for who, start in (("board", "earliest"), ("owner", "resumed")):
        async with talk(world.server, additional_headers=headers_of(world, who)) as socket:
            await socket.say("subscribe", **words)
            assert (await socket.until("subscribed"))["start"] == start
