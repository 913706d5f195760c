"""Rights to publications and named sets, at every door: what is forbidden is answered as what is
not there, and what is allowed shows no more than it should.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.access.sockets.talk import talk
from tests.feeds import eventually, unique
from tests.push.receiver import receiving
from tests.push.service import Service
from tests.rights.as_long import takes_as_long
from tests.rights.conftest import Names, World
from tests.rights.test_doors import client_of, told
from tests.rights.test_leases import ask, asked, cursor_of
from tests.rights.test_sockets import headers_of
from tests.services import PATIENCE_S

pytestmark = pytest.mark.services


def path(name: str) -> str:
    return f"/v1/publications/{name}/events"


async def known(world: World, names: Names) -> None:
    """Until the server has read the tables."""
    headers = {"Authorization": "Bearer board-key-00000001"}
    url = world.server.url + path(names.other_publication) + "?limit=1"
    await eventually(
        lambda: httpx.get(url, headers=headers, timeout=PATIENCE_S).status_code == 200, "known"
    )


@pytest.mark.parametrize("who", ["owner", "guest", "cookie", "ticket"])
@pytest.mark.parametrize("door", ["stream", "page", "posted"])
async def test_a_forbidden_publication_is_answered_as_one_that_is_not_there(
    rights_world: World, names: Names, who: str, door: str
) -> None:
    await known(rights_world, names)
    forbidden = names.publication if who == "guest" else names.other_publication
    query = {"stream": "?from=earliest", "page": "?limit=9", "posted": "?limit=9"}[door]
    own = {"Origin": rights_world.server.url, "Sec-Fetch-Site": "same-origin"}
    async with client_of(rights_world, who) as client:
        answers = []
        for name in (unique("pub"), forbidden):
            if door == "posted":
                answer = await client.post(path(name) + query, json={}, headers=own)
            else:
                answer = await client.get(path(name) + query)
            assert answer.status_code == 404
            assert names.other_publication not in json.dumps(answer.json()["near"])
            answers.append(told(answer, name))
        assert answers[0] == answers[1]
        listed = (await client.get("/v1/publications")).json()["publications"]
        seen = {one["name"] for one in listed} & {names.publication, names.other_publication}
        assert seen == (set() if who == "guest" else {names.publication})


async def test_a_publication_shows_what_its_reader_may_see_of_it_and_no_more(
    rights_world: World, names: Names
) -> None:
    """Of a stream that its reader has no right to."""
    world = rights_world
    await known(world, names)
    async with client_of(world, "owner") as client:
        assert (
            await client.get(f"/v1/streams/{world.other.name}/events?limit=1")
        ).status_code == 404
        # Others write readings without a speed into this stream.
        with_speed = "?from=earliest&limit=50&where=speed IS NOT NULL"
        page = (await client.get(path(names.publication) + with_speed)).json()
        assert {row["device"] for row in page["events"]} == {"car-1"}
        assert {("speed" in row, "secret" in row) for row in page["events"]} == {(True, False)}
        oracle = path(names.publication) + "?from=earliest&limit=9&where=secret = 'x'"
        assert (await client.get(oracle)).json()["events"] == []
    async with talk(world.server, additional_headers=headers_of(world, "owner")) as socket:
        await socket.say("subscribe", publication=names.publication, from_="earliest")
        (event,) = (await socket.take(1))[:1]
        assert (event["data"]["device"], "secret" in event["data"]) == ("car-1", False)
        told_of = []
        for name in (unique("pub"), names.other_publication):
            await socket.say("subscribe", "b", publication=name)
            answer = json.dumps(await socket.until("problem")).replace(name, "NAME")
            told_of.append(answer.partition('"near"')[0].partition("; did you mean")[0])
        assert told_of[0] == told_of[1]


async def test_a_forbidden_publication_takes_as_long_as_one_that_is_not_there(
    rights_world: World, names: Names
) -> None:
    await known(rights_world, names)
    async with client_of(rights_world, "owner") as client:

        async def ask(name: str) -> None:
            assert (await client.get(path(name) + "?limit=9")).status_code == 404

        await takes_as_long(lambda: ask(names.other_publication), lambda: ask(unique("pub")))


@pytest.mark.parametrize(
    "kind",
    ["stream", *(pytest.param(one, marks=pytest.mark.long) for one in ("publication", "set"))],
)
async def test_what_is_forbidden_takes_as_long_on_a_socket(
    rights_world: World, names: Names, kind: str
) -> None:
    world = rights_world
    await known(world, names)
    forbidden = {
        "stream": world.other.name,
        "publication": names.other_publication,
        "set": names.other_set,
    }[kind]

    def words(name: str) -> dict[str, Any]:
        if kind == "publication":
            return {"publication": name}
        if kind == "stream":
            return {"streams": [name]}
        return {"streams": [world.mine.name], "where": f"device IN SET('{name}')"}

    async with talk(world.server, additional_headers=headers_of(world, "owner")) as socket:

        async def ask(name: str) -> None:
            await socket.say("subscribe", **words(name))
            await socket.until("problem")

        await takes_as_long(lambda: ask(forbidden), lambda: ask(unique("x")))


@pytest.mark.parametrize(
    "door",
    [
        "page",
        "leases",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in ("latest", "sync", "deliveries", "groups")
        ),
    ],
)
async def test_a_forbidden_set_takes_as_long_as_one_that_is_not_there(
    rights_world: World, names: Names, push: Service, door: str
) -> None:
    world, good = rights_world, rights_world.token()
    await known(world, names)
    stream = world.mine.name
    cursor = await cursor_of(world, stream, who="owner")
    async with client_of(world, "owner") as client:

        async def by(named_set: str) -> None:
            where = f"device IN SET('{named_set}')"
            body: dict[str, Any] = {"streams": [stream], "where": where}
            if door == "page":
                found = await client.get(
                    f"/v1/streams/{stream}/events", params={"where": where, "limit": 9}
                )
            elif door in ("latest", "sync"):
                found = await client.get(f"/v1/{door}/{stream}", params={"where": where})
            elif door == "leases":
                found = await ask(push, stream, cursor, good, where=where)
            else:
                if door == "deliveries":
                    body["url"] = "http://127.0.0.1:9/hook"
                found = await asked(push, "PUT", f"/v1/{door}/tried", good, body)
            assert found.status_code == 422, found.text

        await takes_as_long(lambda: by(names.other_set), lambda: by(unique("set")))


@pytest.mark.parametrize("who", ["owner", "guest", "cookie", "ticket"])
async def test_a_forbidden_board_is_answered_as_one_that_is_not_there(
    rights_world: World, names: Names, who: str
) -> None:
    await known(rights_world, names)
    forbidden = names.board if who == "guest" else names.other_board
    async with client_of(rights_world, "board") as sees_all:
        for name in (names.board, names.other_board):
            assert (await sees_all.get(f"/v1/boards/{name}")).status_code == 200

    async with client_of(rights_world, who) as client:

        async def by(name: str) -> tuple[int, str, dict[str, str]]:
            answer = await client.get(f"/v1/boards/{name}")
            assert answer.status_code == 404
            return told(answer, name)

        assert await by(forbidden) == await by(unique("board"))
        if who != "ticket":  # a ticket of each request takes longer than its answer
            await takes_as_long(lambda: by(forbidden), lambda: by(unique("board")))
        listed = [one["name"] for one in (await client.get("/v1/boards")).json()["boards"]]
        assert forbidden not in listed
        assert (names.board in listed) is (who != "guest")


@pytest.mark.parametrize("who", ["owner", "guest"])
async def test_a_forbidden_set_is_answered_as_one_that_is_not_there(
    rights_world: World, names: Names, who: str
) -> None:
    world = rights_world
    await known(world, names)
    stream = world.mine.name
    asked = f"/v1/streams/{stream}/events?from=earliest&limit=9&where=device IN SET('NAME')"
    async with client_of(world, who) as client:
        missing, forbidden = [
            told(await client.get(asked.replace("NAME", name)), name)
            for name in (unique("set"), names.other_set)
        ]
        assert missing == forbidden
        allowed = await client.get(asked.replace("NAME", names.named_set))
        if who == "guest":
            assert allowed.status_code in (404, 422)
            return
        assert missing[0] == 422
        assert {row["device"] for row in allowed.json()["events"]} == {"car-1"}
    async with talk(world.server, additional_headers=headers_of(world, who)) as socket:
        answers = []
        for name in (unique("set"), names.other_set):
            await socket.say("subscribe", streams=[stream], where=f"device IN SET('{name}')")
            answers.append(json.dumps(await socket.until("problem")).replace(name, "NAME"))
        assert answers[0] == answers[1]


async def test_a_forbidden_set_is_answered_as_one_that_is_not_there_by_rows_and_by_push(
    rights_world: World, names: Names, push: Service
) -> None:
    """By the latest, a copy, a lease, a delivery and a group; and an allowed one shows no device
    beyond the right.
    """
    world = rights_world
    await known(world, names)
    stream, good = world.mine.name, world.token()
    cursor = await cursor_of(world, stream, who="owner")

    async def by(door: str, named_set: str) -> httpx.Response:
        where = f"device IN SET('{named_set}')"
        body: dict[str, Any] = {"streams": [stream], "where": where, "from": "earliest"}
        if door in ("latest", "sync"):
            async with client_of(world, "owner") as client:
                return await client.get(f"/v1/{door}/{stream}", params={"where": where})
        if door == "leases":
            return await ask(push, stream, cursor, good, where=where)
        if door == "deliveries":
            body["url"] = "http://127.0.0.1:9/hook"
        return await asked(push, "PUT", f"/v1/{door}/{unique('n')}", good, body)

    for door in ("latest", "sync", "leases", "deliveries", "groups"):
        absent = unique("set")
        missing, forbidden = await by(door, absent), await by(door, names.other_set)
        assert missing.status_code == 422, (door, missing.text)
        assert told(missing, absent) == told(forbidden, names.other_set)
        allowed = await by(door, names.named_set)
        assert allowed.status_code in (200, 201), (door, allowed.text)
        if door == "latest":
            assert {row["device"] for row in allowed.json()["rows"]} == {"car-1"}
        if door == "sync":
            assert {one["key"] for one in allowed.json()["rows"]} == {"car-1"}


async def test_a_group_and_letters_are_no_way_to_a_set_that_one_may_not_use(
    rights_world: World, names: Names, push: Service
) -> None:
    """Of one holder two tokens: one may use the set, and the other may not."""
    world, path = rights_world, f"/v1/groups/{unique('g')}"
    await known(world, names)
    with_set, without = (world.token(edgewake_role=role) for role in ("owner", "owner_alone"))
    where = f"device IN SET('{names.named_set}')"
    body = {"streams": [world.mine.name], "where": where, "from": "earliest"}
    assert (await asked(push, "PUT", path, with_set, body)).status_code == 201
    taken = await asked(push, "POST", f"{path}/take", with_set, {"max": 100, "wait_s": 5})
    assert {one["event"]["device"] for one in taken.json()["events"]} == {"car-1"}
    refused = await asked(push, "POST", f"{path}/take", without, {"max": 100})
    assert refused.status_code == 409, refused.text
    assert (await asked(push, "DELETE", path, with_set)).status_code == 204


async def test_who_may_open_a_publication_alone_is_woken_for_it(
    rights_world: World, names: Names, push: Service
) -> None:
    world = rights_world
    await known(world, names)
    async with client_of(world, "owner") as client:  # from the end: others send to it, too
        page = await client.get(path(names.publication) + "?from=latest&limit=1")

    def body(publication: str, **more: str) -> dict[str, Any]:
        return {
            "subscription": {"publication": publication, **more},
            "cursor": page.json()["cursor"],
            "endpoint": {"type": "relay"},
            "wake": {"min_events": 1, "preview_events": 10},
        }

    async def ask_for(publication: str, **more: str) -> httpx.Response:
        return await asked(push, "POST", "/v1/leases", world.token(), body(publication, **more))

    async with asyncio.timeout(PATIENCE_S):
        while (made := await ask_for(names.publication)).status_code != 201:
            assert made.json()["type"].endswith("unknown_publication"), made.text
    lease, token = f"/v1/leases/{made.json()['id']}", made.json()["token"]
    for device in ("car-2", "car-1"):
        fields: dict[str, list[Any]] = {"speed": [91.0], "secret": ["x"]}
        await asyncio.to_thread(world.other.send, device, fields=fields)
    woken = await asked(push, "GET", f"{lease}/wake?after=0&wait=20", token)
    assert woken.status_code == 200, woken.text
    shown = woken.json()["events"]
    assert {event["device"] for event in shown} == {"car-1"}
    assert {("speed" in event, "secret" in event) for event in shown} == {(True, False)}
    assert (await asked(push, "DELETE", lease, token)).status_code == 204
    hidden = await ask_for(names.publication, where="secret = 'x'")
    assert (hidden.status_code, hidden.json()["title"]) == (422, "filter")
    absent, other = unique("pub"), names.other_publication
    forbidden = await ask_for(other)
    assert forbidden.status_code == 422
    assert told(forbidden, other) == told(await ask_for(absent), absent)


async def test_the_command_sleeps_for_a_publication(
    rights_world: World, names: Names, push: Service, tmp_path: Path
) -> None:
    """It took streams alone."""
    world = rights_world
    await known(world, names)
    words = ["sleep", "--publication", names.publication, "--once"]
    options = ["--server", world.server.url, "--proxy", push.url, "--min-interval", "0"]
    output = tmp_path / "out"
    with output.open("wb") as out, (tmp_path / "err").open("wb") as errors:
        running = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "edgewake.deploy.cli",
            *words,
            *options,
            cwd=tmp_path,
            stdout=out,
            stderr=errors,
            env=os.environ | {"EDGEWAKE_TOKEN": world.token()},
        )
    said = tmp_path / "err"
    try:
        async with asyncio.timeout(PATIENCE_S):
            while "asleep" not in said.read_text():
                assert running.returncode is None, said.read_text()
                await asyncio.sleep(0.05)
            fields: dict[str, list[Any]] = {"speed": [73.0], "secret": ["x"]}
            for device in ("car-2", "car-1"):
                await asyncio.to_thread(world.other.send, device, fields=fields)
            assert await running.wait() == 0, said.read_text()
    finally:
        if running.returncode is None:
            running.kill()
    (event,) = [json.loads(line) for line in output.read_text().splitlines()]
    assert (event["device"], event["speed"], "secret" in event) == ("car-1", 73.0, False)


def of(names: Names, publication: str, door: str) -> dict[str, Any]:
    more = {"url": "http://127.0.0.1:9/hook"} if door == "deliveries" else {}
    return {"publication": publication, "from": "earliest", "where": "speed IS NOT NULL", **more}


@pytest.mark.parametrize("door", ["deliveries", "groups"])
async def test_who_may_open_a_publication_alone_has_it_delivered_and_shares_it(
    rights_world: World, names: Names, push: Service, door: str
) -> None:
    """It was 422: its streams needed a right of their own."""
    world, own = rights_world, unique("named")
    await known(world, names)
    address, body, bearer = f"/v1/{door}/{own}", of(names, names.publication, door), world.token()
    async with receiving() as receiver:
        if door == "deliveries":
            body["url"] = receiver.url
        async with asyncio.timeout(PATIENCE_S):
            while (made := await asked(push, "PUT", address, bearer, body)).status_code != 201:
                assert made.json()["type"].endswith("unknown_publication"), made.text
        try:
            assert made.json()["publication"] == names.publication
            if door == "deliveries":
                calls = await receiver.got(1)
                events = [event for call in calls for event in json.loads(call.body)["events"]]
            else:
                words = {"max": 100, "wait_s": 10}
                taken = await asked(push, "POST", f"{address}/take", bearer, words)
                events = [one["event"] for one in taken.json()["events"]]
        finally:
            assert (await asked(push, "DELETE", address, bearer)).status_code == 204
    rows = [event for event in events if "$event" not in event]
    assert {row["device"] for row in rows} == {"car-1"}
    assert {("speed" in row, "secret" in row) for row in rows} == {(True, False)}


@pytest.mark.parametrize("door", ["latest", "sync"])
async def test_who_may_open_a_publication_alone_has_the_latest_of_its_streams(
    rights_world: World, names: Names, door: str
) -> None:
    """It was 404: its streams needed a right of their own."""
    world = rights_world
    await known(world, names)

    def at(publication: str, stream: str, more: str = "") -> str:
        return f"/v1/publications/{publication}/{door}/{stream}?where=speed IS NOT NULL{more}"

    async with client_of(world, "owner") as client:
        assert (await client.get(f"/v1/{door}/{world.other.name}")).status_code == 404
        found = await client.get(at(names.publication, world.other.name))
        assert found.status_code == 200, found.text
        rows = found.json()["rows"]
        rows = [one["row"] for one in rows] if door == "sync" else rows
        assert [row["device"] for row in rows] == ["car-1"]
        assert ("speed" in rows[0], "secret" in rows[0]) == (True, False)
        oracle = at(names.publication, world.other.name, " AND secret = 'x'")
        assert (await client.get(oracle)).json()["rows"] == []
        # What it does not have is as what is not there, also where its reader has a right to it.
        absent = unique("feed")
        missing = told(await client.get(at(names.publication, absent)), absent)
        assert missing[0] == 404
        elsewhere = world.mine.name
        assert told(await client.get(at(names.publication, elsewhere)), elsewhere) == missing
        # And so is a publication that is another's.
        other, no = names.other_publication, unique("pub")
        forbidden = await client.get(at(other, world.other.name))
        assert forbidden.status_code == 404
        assert told(forbidden, other) == told(await client.get(at(no, world.other.name)), no)
        if door == "sync":
            cursor = found.json()["cursor"]
            again = await client.get(at(names.publication, world.other.name, f"&after={cursor}"))
            assert (again.json()["kind"], again.json()["changes"]) == ("changes", [])


@pytest.mark.parametrize("who", ["owner", "guest"])
@pytest.mark.parametrize("door", ["deliveries", "groups"])
async def test_a_forbidden_publication_is_delivered_and_shared_as_one_that_is_not_there(
    rights_world: World, names: Names, push: Service, door: str, who: str
) -> None:
    await known(rights_world, names)
    bearer = rights_world.token() if who == "owner" else "guest-key-00000001"
    forbidden = names.publication if who == "guest" else names.other_publication

    async def by(name: str) -> tuple[int, str, dict[str, str]]:
        answer = await asked(push, "PUT", f"/v1/{door}/tried", bearer, of(names, name, door))
        assert answer.status_code == 422
        assert names.other_publication not in answer.text.replace(name, "")
        return told(answer, name)

    absent = unique("pub")
    assert await by(forbidden) == await by(absent)
    await takes_as_long(lambda: by(forbidden), lambda: by(absent))
