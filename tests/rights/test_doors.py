"""Six principals at every door of an access server: what each is shown, and that what it may not
see is answered as what is not there.

The doors are taken from the application's own table of routes: one that has no rule here fails.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from edgewake.cloud.access import app as application
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.latest.latest_stores import LatestStores
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.open_streams import OpenStreams
from edgewake.cloud.access.reports.lease_reports import LeaseReports
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.rights.config import ANYBODY_CONFIG, RightsConfig
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.cloud.rights.rights import End, Rights
from edgewake.cloud.web.http_part import _leaves_of
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.cursor import CursorCodec, CursorKeys
from tests.feeds import eventually, unique
from tests.rights.as_long import takes_as_long
from tests.rights.conftest import KEYS, Names, World
from tests.rights.forge import AUDIENCE, Maker, key_set
from tests.services import PATIENCE_S

OPEN, NAMED, LISTS, OWN = "open", "named", "lists", "own"
RULES = {
    "/": OPEN, "/town": OPEN, "/docs": OPEN, "/openapi.json": OPEN,
    "/asyncapi.json": OPEN, "/healthz": OPEN,
    "/readyz": OPEN, "/metrics": OPEN, "/v1/server": OPEN, "/page": OPEN, "/docs/{file}": OPEN,
    "/login/me": OPEN,
    "/v1/streams": LISTS, "/v1/publications": LISTS, "/v1/boards": LISTS,
    "/v1/boards/{name}": NAMED,
    "/v1/publications/{name}/events": NAMED,
    "/v1/publications/{publication}/latest/{name}": NAMED,
    "/v1/publications/{publication}/sync/{name}": NAMED,
    "/v1/streams/{name}/events": NAMED, "/v1/events": NAMED, "/v1/latest/{name}": NAMED,
    "/v1/sync/{name}": NAMED,
    "/v1/tickets": OWN, "/v1/session": OWN, "/v1/ws": OWN,
}  # fmt: skip
"""Who may come in by each path: everybody; who has a right to the name; who has any right, and sees
what it may; who has one, about itself."""
NAMED_PATHS = {
    "a stream": "/v1/streams/{}/events?from=earliest",
    "a page": "/v1/streams/{}/events?from=earliest&limit=9",
    "a page, NDJSON": "/v1/events?stream={}&from=earliest&limit=9",
    "several": "/v1/events?stream={}&stream={}&from=earliest",
    "one of several": "/v1/events?stream={}&stream={allowed}&from=earliest",
    "latest": "/v1/latest/{}",
    "sync": "/v1/sync/{}",
}
PRINCIPALS = ("stranger", "board", "owner", "guest", "cookie", "ticket")
STRANGERS: dict[str, dict[str, Any]] = {
    "expired": {"exp": time.time() - 60},
    "of another audience": {"aud": "others"},
    "of another issuer": {"iss": "https://evil.example.org"},
}


def app(config: RightsConfig | None = None) -> FastAPI:
    """The application, of which nothing runs."""
    settings, clock, metrics = AccessConfig(), SystemClock(), Metrics()
    hub = Hub(
        settings.hub,
        KafkaConfig(bootstrap="127.0.0.1:9"),
        name="doors",
        codec=CursorCodec(CursorKeys({1: b"k" * 32}, 1)),
        clock=clock,
    )
    rights = Rights(config or RightsConfig(), clock)
    return application.build(
        settings,
        hub=hub,
        streams=OpenStreams(
            settings, metrics, hub, rights=rights, clock=clock, rng=random.Random(1)
        ),
        latest=LatestStores(hub, clock),
        leases=LeaseReports(settings.kafka, "doors", clock),
        metrics=metrics,
        rights=rights,
        clock=clock,
    )


def paths_of(found: FastAPI) -> set[str]:
    leaves = {route.path for route in _leaves_of(found.routes)}
    mounts = {getattr(route, "path", "") for route in found.routes} - {""}
    return leaves | mounts


def test_every_route_has_a_rule() -> None:
    assert paths_of(app()) == set(RULES)


@pytest.mark.parametrize("why", ["revoked", "the server stops"])
async def test_a_long_poll_that_is_to_end_while_it_is_being_begun_waits_no_longer(
    why: str,
) -> None:
    """Kafka may take seconds before there is something to end; then it waited for a minute."""
    settings, clock = AccessConfig(), SystemClock()
    rights = Rights(ANYBODY_CONFIG, clock)
    streams = OpenStreams(
        settings,
        Metrics(),
        None,  # type: ignore[arg-type]  # nothing is read
        rights=rights,
        clock=clock,
        rng=random.Random(1),
    )
    connection = SimpleNamespace(is_lost=lambda: False, is_paused=False)
    stream = streams.add(connection, client="c", reader=ANYBODY, heartbeat_s=None)  # type: ignore[arg-type]
    if why == "revoked":
        stream.end_of_right(End.REVOKED)
    else:
        stream.end()
    ended: list[str] = []
    stream.call_at_end(lambda: ended.append(why))
    assert ended == [why]
    stream.close()


async def test_what_has_a_rule_asks_who_comes() -> None:
    """Also a route of tomorrow: nothing of the application is reached before the guard has seen
    the request.
    """
    made = app()

    @made.get("/v1/tomorrow")
    async def tomorrow() -> str:
        return "secret"

    transport = httpx.ASGITransport(made)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for path, rule in (*RULES.items(), ("/v1/tomorrow", LISTS)):
            for method in ("GET", "HEAD", "POST", "DELETE"):
                asked = path.replace("{name}", "s").replace("/page", "/page/style.css")
                answer = await client.request(method, asked)
                if rule is OPEN:
                    assert answer.status_code not in (401, 403), path
                else:
                    assert answer.status_code == 401, (method, path)


@asynccontextmanager
async def client_of(world: World, who: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that comes as one of PRINCIPALS. A ticket is taken for each request."""
    bearer = {
        "board": "board-key-00000001",
        "guest": "guest-key-00000001",
        "owner": world.token(),
    }.get(who)
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}

    async def with_ticket(request: httpx.Request) -> None:
        ticket = (await owner.post("/v1/tickets")).json()["ticket"]
        request.url = request.url.copy_add_param("ticket", ticket)

    hooks = {"request": [with_ticket]} if who == "ticket" else {}
    url = world.server.url
    async with (
        httpx.AsyncClient(
            base_url=url,
            timeout=PATIENCE_S,
            headers={"Authorization": f"Bearer {world.token()}"},
        ) as owner,
        httpx.AsyncClient(
            base_url=url, timeout=PATIENCE_S, headers=headers, event_hooks=hooks
        ) as client,
    ):
        if who == "cookie":
            begun = await owner.post("/v1/session")
            assert begun.status_code == 204
            said = begun.headers["set-cookie"].lower()
            assert "httponly" in said
            assert "samesite=strict" in said
            client.cookies = begun.cookies
        yield client


async def events(client: httpx.AsyncClient, path: str, count: int) -> list[dict[str, Any]]:
    """The data of the first events of a stream, and then of what it ends with, if it ends."""
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE_S), client.stream("GET", path) as answer:
        assert answer.status_code == 200, await answer.aread()
        name = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                if name in ("", "end", "gap"):
                    found.append(json.loads(line.removeprefix("data: ")) | {"kind": name})
                name = ""
            if len(found) >= count:
                break
    return found


def told(answer: httpx.Response, name: str) -> tuple[int, str, dict[str, str]]:
    """An answer without what differs between any two."""
    left_out = ("date", "retry-after", "content-length")
    headers = {key: value for key, value in answer.headers.items() if key not in left_out}
    text = re.sub(r'"near":\[[^]]*\]|; did you mean [^"?]*\?', "", answer.text)
    return answer.status_code, text.replace(name, "NAME").replace(',"near"', ""), headers


@pytest.mark.parametrize("door", NAMED_PATHS)
@pytest.mark.parametrize("who", PRINCIPALS)
async def test_what_is_forbidden_is_answered_as_what_is_not_there(
    rights_world: World, who: str, door: str
) -> None:
    world = rights_world
    allowed = world.totals.name if who != "guest" else "weather_now"
    path = NAMED_PATHS[door].replace("{allowed}", allowed)
    absent = unique("feed")
    forbidden = world.mine.name if who == "guest" else world.other.name
    async with client_of(world, who) as client:
        missing = await client.get(path.replace("{}", absent))
        if who == "stranger":
            assert missing.status_code == 401
            answer = await client.get(path.replace("{}", world.mine.name))
            assert told(answer, world.mine.name) == told(missing, absent)
            return
        assert missing.status_code == 404
        if who == "board":
            return
        for headers in ({}, {"Sec-Fetch-Mode": "cors"}):
            answer = await client.get(path.replace("{}", forbidden), headers=headers)
            assert told(answer, forbidden) == told(missing, absent)
            assert world.other.name not in json.dumps(missing.json()["near"])


@pytest.mark.parametrize("who", ["board", "owner", "cookie", "ticket"])
async def test_what_is_allowed_is_shown_and_no_more(rights_world: World, who: str) -> None:
    world = rights_world
    sees_all = who == "board"
    async with client_of(world, who) as client:
        name = world.mine.name
        latest = (await client.get(NAMED_PATHS["latest"].replace("{}", name))).json()["rows"]
        page = (await client.get(NAMED_PATHS["a page"].replace("{}", name))).json()["events"]
        stream = await events(
            client, NAMED_PATHS["a stream"].replace("{}", name), 2 if sees_all else 1
        )
        for rows in (latest, page, stream):
            assert {row["device"] for row in rows} == (
                {"car-1", "car-2"} if sees_all else {"car-1"}
            )
            assert {"speed" in row for row in rows} == {True}
            assert {"secret" in row for row in rows} == {sees_all}
        asked = f"/v1/streams/{name}/events?from=earliest&limit=9&where="
        oracle = await client.get(asked + "secret = 'x' OR device = 'car-2'")
        assert len(oracle.json()["events"]) == (2 if sees_all else 0)
        page = (await client.get(NAMED_PATHS["a page"].replace("{}", world.totals.name))).json()
        rows = [row for row in page["events"] if "$event" not in row]
        assert [row.get("device") for row in rows] == (
            [None, "car-1", "car-2"] if sees_all else ["car-1"]
        )
        listed = {row["name"] for row in (await client.get("/v1/streams")).json()["streams"]}
        names = {world.mine.name, world.other.name, world.totals.name}
        seen = names if sees_all else names - {world.other.name}
        assert listed & names == seen
        assert sees_all or listed == seen


async def test_a_filter_tells_nothing_by_its_warnings(rights_world: World) -> None:
    async with client_of(rights_world, "owner") as client:
        path = f"/v1/streams/{rights_world.mine.name}/events?from=earliest&where=secre IS NULL"
        async with asyncio.timeout(PATIENCE_S), client.stream("GET", path) as answer:
            async for line in answer.aiter_lines():
                assert "secret" not in line
                if line.startswith("data: ") and "car-1" in line:
                    break


@pytest.mark.parametrize(
    "door",
    [
        "a page",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("several", "latest", "sync")),
    ],
)
async def test_it_takes_as_long(rights_world: World, door: str) -> None:
    """What is forbidden is looked for as long as what is not there: both wait for a fresh look."""
    path = NAMED_PATHS[door]
    async with client_of(rights_world, "owner") as client:

        async def ask(name: str) -> None:
            assert (await client.get(path.replace("{}", name))).status_code == 404

        await takes_as_long(lambda: ask(rights_world.other.name), lambda: ask(unique("feed")))


async def test_a_difference_of_a_third_is_found() -> None:
    """The control of what says that it takes as long."""
    with pytest.raises(AssertionError, match="takes longer"):
        await takes_as_long(lambda: asyncio.sleep(0.008), lambda: asyncio.sleep(0.012))


async def test_a_cursor_of_one_is_no_right_of_another(rights_world: World) -> None:
    world = rights_world
    async with client_of(world, "board") as board, client_of(world, "owner") as owner:
        both = f"/v1/events?stream={world.mine.name}&stream={world.other.name}"
        page = (await board.get(f"{both}&from=earliest&limit=1")).json()
        forbidden = await owner.get(f"{both}&after={page['cursor']}")
        assert forbidden.status_code in (404, 503)
        assert page["events"]
        assert "events" not in forbidden.json()
        one = f"/v1/streams/{world.mine.name}/events?limit=9"
        page = (await board.get(f"{one}&from=earliest")).json()
        before = (await board.get(f"{one}&from=earliest&limit=1".replace("limit=9&", ""))).json()
        mine = (await owner.get(f"{one}&after={before['cursor']}")).json()["events"]
        assert {row["device"] for row in mine} <= {"car-1"}
        assert all("secret" not in row for row in mine)
        assert len(page["events"]) == 2


async def test_what_many_may_cache_is_nobodys_own(rights_world: World) -> None:
    async with client_of(rights_world, "owner") as client:
        path = f"/v1/streams/{rights_world.mine.name}/events?limit=1&after="
        first = await client.get(path.replace("&after=", "&from=earliest"))
        again = await client.get(path + first.json()["cursor"])
        for answer in (first, again):
            assert "public" not in answer.headers["cache-control"]
            assert "Authorization" in answer.headers["vary"]


@pytest.mark.parametrize("why", STRANGERS)
async def test_a_token_that_proves_nothing_is_never_taken_for_nothing(
    rights_world: World, why: str
) -> None:
    token = rights_world.token(**STRANGERS[why])
    async with httpx.AsyncClient(base_url=rights_world.server.url, timeout=PATIENCE_S) as client:
        for headers in (
            {"Authorization": f"Bearer {token}"},
            {"Cookie": f"edgewake_reader={token}"},
        ):
            answer = await client.get("/v1/streams", headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        huge = await client.get("/v1/streams", headers={"Authorization": "Bearer " + "x" * 100_000})
        assert huge.status_code in (400, 401, 431)


async def test_a_browser_that_cannot_be_told_who_it_is_comes_again() -> None:
    """Its EventSource would stop for ever at 503, which a program is answered."""
    issuer = {
        "issuer": "https://away.example.org",
        "audience": AUDIENCE,
        "jwks_url": "http://127.0.0.1:9/keys",
        "role": "everything",
    }
    made = app(RightsConfig.model_validate({"issuers": [issuer]}))
    token = Maker().token(iss=issuer["issuer"], exp=time.time() + 60).decode()
    transport = httpx.ASGITransport(made)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://localhost", headers=headers
    ) as client:
        program = await client.get("/v1/streams/s/events")
        assert (program.status_code, program.headers["retry-after"]) == (503, "2")
        browser = await client.get("/v1/streams/s/events", headers={"Sec-Fetch-Mode": "cors"})
        assert (browser.status_code, browser.text[:6]) == (200, "retry:")
        assert browser.headers["content-type"].startswith("text/event-stream")


async def test_a_holder_has_so_many_streams(rights_world: World) -> None:
    """And others have theirs."""
    world = rights_world
    path = f"/v1/streams/{world.mine.name}/events"
    headers = {"Authorization": "Bearer single-key-0000001"}
    async with (
        httpx.AsyncClient(base_url=world.server.url, timeout=PATIENCE_S, headers=headers) as single,
        client_of(world, "board") as board,
    ):
        async with single.stream("GET", path) as first:
            assert first.status_code == 200
            second = await single.get(f"{path}?limit=1&from=earliest")
            assert (second.status_code, second.json()["title"]) == (503, "full")
            assert second.json()["detail"].startswith("streams_max: you have 1 ")
            assert (await board.get(f"{path}?limit=1&from=earliest")).status_code == 200
        async with asyncio.timeout(PATIENCE_S):
            while (await single.get(f"{path}?limit=1&from=earliest")).status_code != 200:
                await asyncio.sleep(0.1)


async def test_a_ticket_is_used_once_and_not_logged(rights_world: World) -> None:
    async with client_of(rights_world, "owner") as owner:
        ticket = (await owner.post("/v1/tickets")).json()["ticket"]
    log = rights_world.server.process.log
    async with httpx.AsyncClient(base_url=rights_world.server.url, timeout=PATIENCE_S) as client:
        path = f"/v1/streams?ticket={ticket}"
        assert (await client.get(path)).status_code == 200
        again = await client.get(path)
        assert again.status_code == 401
        assert ticket not in again.text
        wrong = await client.get(f"/v1/streams/{unique('x')}/events?nonsense=1&ticket={ticket}")
        assert wrong.status_code == 401
    assert ticket not in log.read_text()


async def test_a_cookie_changes_nothing_from_a_foreign_page(rights_world: World) -> None:
    async with client_of(rights_world, "cookie") as client:
        foreign = {"Origin": "https://evil.example.org", "Sec-Fetch-Site": "cross-site"}
        assert (await client.post("/v1/tickets")).status_code == 403
        assert (await client.post("/v1/tickets", headers=foreign)).status_code == 403
        own = {"Origin": rights_world.server.url, "Sec-Fetch-Site": "same-origin"}
        assert (await client.post("/v1/tickets", headers=own)).status_code == 200


REASONS = ("expired", "key removed", "issuer's key removed", "token taken back")


@pytest.mark.parametrize("why", REASONS)
async def test_what_is_open_ends_when_the_right_does(rights_world: World, why: str) -> None:
    """A stream within two seconds, with an event that says why; a page that waits is refused. What
    others have open goes on.
    """
    world, began = rights_world, time.monotonic()
    second = Maker(kid=unique("kid"))
    world.file("issuer.json", key_set(world.maker, second))
    if why == "key removed":
        bearer = "lost-key-000000001"
    elif why == "issuer's key removed":
        said: dict[str, Any] = {"edgewake_role": "owner", "device": "car-1"}
        bearer = second.token(exp=time.time() + 600, **said).decode()
    else:
        lives_s = 3 if why == "expired" else 600
        bearer = world.token(jti="t-lost", exp=time.time() + lives_s)
    headers = {"Authorization": f"Bearer {bearer}"}
    path = f"/v1/streams/{world.mine.name}/events"
    ended_at: list[float] = []

    async def follow(client: httpx.AsyncClient) -> list[dict[str, Any]]:
        found = await events(client, f"{path}?from=latest", 1)
        ended_at.append(time.monotonic())
        return found

    async with (
        httpx.AsyncClient(base_url=world.server.url, timeout=PATIENCE_S, headers=headers) as client,
        client_of(world, "board") as board,
    ):
        stream = asyncio.create_task(follow(client))
        page = asyncio.create_task(client.get(f"{path}?limit=5&wait=60"))
        other = asyncio.create_task(follow(board))
        try:
            await eventually(
                lambda: clients_of(world) >= 3 or stream.done() or page.done(), "all are open"
            )
            ends = time.monotonic()
            if why == "expired":
                ends = began + 3
            elif why == "key removed":
                world.file("readers.keys", KEYS.replace("lost ", "# lost "))
            elif why == "issuer's key removed":
                world.file("issuer.json", key_set(world.maker))
            else:
                world.file("revoked", "jti t-lost\n")
            (end,) = await stream
            answer = await page
            assert end == {"kind": "end", "reason": "expired" if why == "expired" else "revoked"}
            assert answer.status_code == 401
            assert ended_at[0] - ends < 2.5
            assert not other.done()
            assert (await client.get("/v1/streams")).status_code == 401
        finally:
            other.cancel()
            await asyncio.wait([other, stream, page])
            world.file("revoked", "")
            world.file("readers.keys", KEYS)


@pytest.mark.parametrize(
    "who",
    [*(pytest.param(one, marks=pytest.mark.long) for one in ("bearer", "cookie")), "ticket"],
)
async def test_all_that_is_open_ends_with_its_token_however_that_was_shown(
    rights_world: World, names: Names, who: str
) -> None:
    """A stream, one by a body, of several, of a publication; a page that waits, and a copy."""
    world, name = rights_world, rights_world.mine.name
    published = f"/v1/publications/{names.publication}/events"
    async with client_of(world, "owner") as owner, asyncio.timeout(PATIENCE_S):
        while (await owner.get(f"{published}?limit=1")).status_code != 200:
            await asyncio.sleep(0.1)  # until the server has read the table
        copy = (await owner.get(f"/v1/sync/{name}")).json()["cursor"]
    ends = time.time() + 4
    bearer = {"Authorization": f"Bearer {world.token(exp=ends)}"}
    streams = {
        f"/v1/streams/{name}/events?from=latest": None,
        f"/v1/streams/{name}/events": {"devices": ["car-1"], "from": "latest"},
        f"/v1/events?stream={name}&stream={world.totals.name}&from=latest": None,
        f"{published}?from=latest": None,
    }
    waiting = [
        f"/v1/streams/{name}/events?from=latest&wait=60&limit=5",
        f"/v1/sync/{name}?after={copy}&wait=60",
    ]
    async with httpx.AsyncClient(base_url=world.server.url, timeout=PATIENCE_S) as client:

        async def shown(path: str) -> tuple[str, dict[str, str]]:
            """The path, and headers, as this one comes."""
            if who == "ticket":
                ticket = (await client.post("/v1/tickets", headers=bearer)).json()["ticket"]
                return f"{path}{'&' if '?' in path else '?'}ticket={ticket}", {}
            if who == "cookie":
                begun = await client.post("/v1/session", headers=bearer)
                own = {"Origin": world.server.url, "Sec-Fetch-Site": "same-origin"}
                return path, own | {"Cookie": begun.headers["set-cookie"].partition(";")[0]}
            return path, bearer

        async def follow(path: str, body: Any) -> tuple[str, float]:
            path, headers = await shown(path)
            method = "GET" if body is None else "POST"
            async with client.stream(method, path, headers=headers, json=body) as answer:
                assert answer.status_code == 200, await answer.aread()
                text = "".join([piece async for piece in answer.aiter_text()])
            return text.rpartition("event: end\ndata: ")[2].partition("\n")[0], time.time()

        async def wait(path: str) -> tuple[str, float]:
            path, headers = await shown(path)
            answer = await client.get(path, headers=headers)
            return f"{answer.status_code} {answer.json()['title']}", time.time()

        async with asyncio.timeout(PATIENCE_S):
            found = await asyncio.gather(
                *(follow(path, body) for path, body in streams.items()), *map(wait, waiting)
            )
    assert [words for words, _ in found[:4]] == ['{"reason":"expired"}'] * 4
    assert [words for words, _ in found[4:]] == ["401 key expired"] * 2
    assert all(ends - 0.1 <= at < ends + 2.5 for _, at in found)


async def test_who_does_not_read_is_cut_off_with_its_right(rights_world: World) -> None:
    """What waits for it would go out after the right has ended; a stalled client is else left alone
    for half a minute.
    """
    world = rights_world
    world.other.send("car-1", n=1000, frames=60)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.server.port, limit=2**12)
    path = f"/v1/streams/{world.other.name}/events?from=earliest"
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer lost-key-000000001\r\n"
    writer.write(head.encode() + b"\r\n")
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert b"200" in await reader.readline()
        before = 0.0
        async with asyncio.timeout(PATIENCE_S):
            while (sent := sent_bytes_of(world)) > before:  # until no more goes out
                before = sent
                await asyncio.sleep(0.5)
        assert sent > 0
        assert clients_of(world) >= 1
        world.file("readers.keys", KEYS.replace("lost ", "# lost "))
        began = time.monotonic()
        await eventually(lambda: clients_of(world) == 0, "it is cut off")
        assert time.monotonic() - began < 5
    finally:
        world.file("readers.keys", KEYS)
        writer.close()


async def test_what_is_forbidden_is_waited_for_as_what_is_not_there(rights_world: World) -> None:
    world = rights_world
    told_of: list[tuple[int, str, str]] = []
    async with client_of(world, "owner") as client:
        for name in (world.other.name, unique("feed")):
            path = f"/v1/streams/{name}/events?absent=wait&from=earliest"
            async with asyncio.timeout(PATIENCE_S), client.stream("GET", path) as answer:
                line = await anext(answer.aiter_lines())
                told_of.append((answer.status_code, answer.headers["edgewake-start"], line))
    assert told_of[0] == told_of[1]
    assert told_of[0][:2] == (200, "waiting")


def sent_bytes_of(world: World) -> float:
    """What was written to clients so far."""
    text = httpx.get(f"{world.server.url}/metrics", timeout=PATIENCE_S).text
    found = re.search(r"^edgewake_access_sent_bytes_total ([0-9.e+]+)", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def clients_of(world: World) -> float:
    """Streams and pages that are open."""
    text = httpx.get(f"{world.server.url}/metrics", timeout=PATIENCE_S).text
    found = re.search(r"^edgewake_access_clients(?:\{[^}]*\})? ([0-9.]+)", text, re.MULTILINE)
    assert found is not None
    return float(found[1])
