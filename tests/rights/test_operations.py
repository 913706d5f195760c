"""Eight principals at every door of the operations API: who comes in where, by role or by grants.

The doors are taken from the application's own table of routes. What grants reach is narrowed by
each route: test_operations_narrowed.py has a case for each of those.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import MagicMock

import httpx
import pytest

from edgewake.cloud.client_share import Clients
from edgewake.cloud.ops.app import make_app
from edgewake.cloud.ops.login.auth import FILES, OPEN_PATHS, PAGES, Access
from edgewake.cloud.ops.login.key_door import KeyDoor
from edgewake.cloud.ops.login.keys import Keys
from edgewake.cloud.ops.login.reach import NARROWED
from edgewake.cloud.ops.login.readers import Readers
from edgewake.cloud.ops.login.sessions import Passes
from edgewake.cloud.rights.config import RightsConfig
from edgewake.cloud.rights.principal import Action
from edgewake.cloud.rights.rights import Rights
from edgewake.cloud.web.http_part import _leaves_of
from edgewake.protocol.clock import SystemClock
from tests.rights.forge import AUDIENCE, ISSUER, Maker, key_set, write

OWN_KEY, WALL_KEY, READER_KEY = "the-operators-own-key", "the-key-of-the-wall", "a-readers-own-key"
OPEN = OPEN_PATHS | PAGES | {"/docs/{file}"}
OWN_AFFAIRS = {"/v1/session", "/v1/tickets"}
ROLES = {
    "viewer": [{"actions": ["view"]}],
    "operator": [{"actions": ["operate"]}],
    "owner": [
        {"actions": ["read", "ask"], "streams": ["name"], "devices": ["device"]},
        {"actions": ["command"], "devices": ["device"]},
    ],
    "reader": [{"streams": ["*"]}],
    "asker": [{"actions": ["ask"], "streams": ["*"]}],
}
Rule = Callable[[str, str], bool]


def narrowed(*actions: Action) -> Rule:
    """Its own affairs, and what grants with these actions reach."""
    return lambda method, path: path in OWN_AFFAIRS or NARROWED.get(f"{method} {path}") in actions


COMES_IN: dict[str, Rule] = {
    "stranger": lambda *_: False,
    "expired": lambda *_: False,
    "operator's key": lambda *_: True,
    "operator": lambda *_: True,
    "wall's key": lambda method, path: method == "GET" or path in OWN_AFFAIRS | {"/v1/sql"},
    "viewer": lambda method, path: method == "GET" or path in OWN_AFFAIRS | {"/v1/sql"},
    "owner": narrowed(Action.READ, Action.ASK, Action.COMMAND),
    "reader": narrowed(Action.READ),
    "asker": narrowed(Action.ASK),
}


@dataclass
class World:
    """The application; what lies behind its guard is never reached, and so not there."""

    client: httpx.AsyncClient
    doors: list[tuple[str, str]]
    maker: Maker
    rights: Rights | None
    folder: Path

    def headers(self, who: str) -> dict[str, str]:
        keys = {"operator's key": OWN_KEY, "wall's key": WALL_KEY, "reader": READER_KEY}
        if who == "stranger":
            return {}
        role = "viewer" if who == "expired" else who
        lives_s = -60 if who == "expired" else 60
        shown = (
            keys.get(who)
            or self.maker.token(edgewake_role=role, exp=time.time() + lives_s).decode()
        )
        return {"Authorization": f"Bearer {shown}"}


def world_in(folder: Path, *, has_rights: bool) -> World:
    clock, maker = SystemClock(), Maker()
    keys = Keys(write(folder / "ops.key", f"ann operate {OWN_KEY}\nwall read {WALL_KEY}\n"))
    door = KeyDoor(keys, clock)
    config = {
        "key_file": write(folder / "readers.keys", f"wall reader {READER_KEY}\n"),
        "revoked_file": write(folder / "revoked", ""),
        "roles": {name: {"grants": grants} for name, grants in ROLES.items()},
        "issuers": [
            {
                "issuer": ISSUER,
                "audience": AUDIENCE,
                "jwks_file": write(folder / "issuer.json", key_set(maker)),
                "roles": list(ROLES),
                "leeway_s": 0,
            }
        ],
    }
    rights = Rights(RightsConfig.model_validate(config), clock) if has_rights else None
    readers = None if rights is None else Readers(rights, clock, door.shown)
    tickets, sessions = (Passes(clock, lambda: "secret", 60.0) for _ in range(2))
    access = Access(keys, door, Clients(), tickets, sessions, None, readers)
    made = make_app(MagicMock(access=access))
    doors = [
        (method, route.path)
        for route in _leaves_of(made.routes)
        for method in sorted(route.methods or ())
        if method != "HEAD" and route.path not in OPEN and not route.path.startswith(FILES)
    ]
    transport = httpx.ASGITransport(made, raise_app_exceptions=False)
    client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
    return World(client, doors, maker, rights, folder)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return world_in(tmp_path, has_rights=True)


def asked(path: str) -> str:
    """Where the owner's grants reach it."""
    return re.sub(r"[{}]", "", path) + ("?device=device" if path.endswith("/gaps") else "")


@pytest.mark.parametrize("who", COMES_IN)
async def test_every_door_opens_to_whom_it_should(world: World, who: str) -> None:
    headers, wrong = world.headers(who), []
    refused = 401 if who in ("stranger", "expired") else 403
    for method, path in world.doors:
        status = (await world.client.request(method, asked(path), headers=headers)).status_code
        comes_in = COMES_IN[who](method, path)
        if (status != refused) if not comes_in else (status in (401, 403)):
            wrong.append((method, path, status))
    assert wrong == []


def test_what_grants_reach_are_routes_that_there_are(world: World) -> None:
    assert set(NARROWED) <= {f"{method} {path}" for method, path in world.doors}


@pytest.mark.parametrize("path", ["/v1/devices/", "/v1/streams/a/gaps/x", "/v1//devices", "/v1/x"])
async def test_a_path_that_only_looks_like_a_narrowed_one_is_of_the_whole(
    world: World, path: str
) -> None:
    answer = await world.client.get(path, headers=world.headers("owner"))
    assert answer.status_code == 403
    assert "needs the action view" in answer.json()["detail"]


async def test_without_rights_a_readers_key_or_token_opens_nothing(tmp_path: Path) -> None:
    world = world_in(tmp_path, has_rights=False)
    token = world.headers("operator")["Authorization"]
    ways = (
        {"Authorization": token},
        {"Authorization": f"Bearer {READER_KEY}"},
        {"Cookie": f"edgewake_reader={READER_KEY}; edgewake_ops_80={READER_KEY}"},
    )
    for method, path in world.doors:
        for headers in ways:
            answer = await world.client.request(method, asked(path), headers=headers)
            assert answer.status_code == 401, (method, path)


async def test_a_cookie_or_ticket_of_access_servers_opens_nothing(world: World) -> None:
    for method, path in world.doors:
        cookie = {"Cookie": f"edgewake_reader={READER_KEY}; edgewake_ops_80={READER_KEY}"}
        for found, headers in (
            (asked(path), cookie),
            (f"{asked(path).partition('?')[0]}?ticket=made-up", {}),
        ):
            answer = await world.client.request(method, found, headers=headers)
            assert answer.status_code == 401, (method, path)


async def test_one_is_told_by_what_it_is_refused(world: World) -> None:
    async def detail(who: str, method: str, path: str) -> str:
        answer = await world.client.request(method, path, headers=world.headers(who))
        return str(answer.json()["detail"])

    assert await detail("reader", "POST", "/v1/sql") == (
        "'wall (reader)' has no grant with the action ask"
    )
    assert "grants of some streams or devices, and this is of the whole system" in await detail(
        "owner", "GET", "/v1/overview"
    )
    assert "it needs the action operate" in await detail("owner", "DELETE", "/v1/streams/name")
    assert "expired" in await detail("expired", "GET", "/v1/devices")


async def test_what_is_taken_back_opens_nothing_any_more(world: World) -> None:
    assert world.rights is not None
    before = world.headers("reader"), world.headers("viewer")
    for headers in before:
        assert (await world.client.get("/v1/session", headers=headers)).status_code != 401
    write(world.folder / "revoked", "key wall\nsub anna\n")
    world.rights.look()
    for headers in before:
        assert (await world.client.get("/v1/session", headers=headers)).status_code == 401


async def test_wrong_keys_of_both_kinds_are_counted_together(world: World) -> None:
    """Else who has guessed ten at one door begins again at the other."""
    for n in range(10):
        wrong = {"Authorization": f"Bearer a-guess-at-some-key-{n}"}
        assert (await world.client.get("/v1/devices", headers=wrong)).status_code == 401
    for right in ("operator's key", "reader"):
        answer = await world.client.get("/v1/devices", headers=world.headers(right))
        assert answer.status_code == 429, right
