"""Who shows wrong keys has to wait, and nobody else: neither strangers nor neighbours."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.responses import PlainTextResponse

from edgewake.cloud.client_share import Clients
from edgewake.cloud.log_pace import LINES_MAX
from edgewake.cloud.ops.login import pages
from edgewake.cloud.ops.login.auth import Access, Guard
from edgewake.cloud.ops.login.key_door import KeyDoor
from edgewake.cloud.ops.login.keys import Keys
from edgewake.cloud.ops.login.sessions import Passes
from edgewake.cloud.rights.tries import ALL_MAX, OWN_MAX, OWN_S
from edgewake.cloud.web.http_part import Problem
from edgewake.protocol.clock import FakeClock

KEY, OTHER = "k" * 32, "o" * 32
HOSTILE, MODEST = "203.0.113.1", "198.51.100.7"


class World:
    """A door, its clock, and the file of its keys."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "ops.key"
        self.file.write_text(f"ann operate {KEY}\nbob read {OTHER}\n")
        self.clock = FakeClock()
        self.keys = Keys(self.file)
        self.door = KeyDoor(self.keys, self.clock)

    def shows(self, client: str, key: str) -> str | None:
        """The holder's name, None, or "waits"."""
        try:
            holder = self.door.find(key.encode(), client)
        except Problem as problem:
            return "waits" if problem.status == 429 else str(problem)
        return None if holder is None else holder.name

    def guesses(self, client: str, count: int, first: int = 0) -> list[str | None]:
        return [self.shows(client, f"guess-{client}-{first + n}") for n in range(count)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_who_guesses_has_to_wait_and_a_right_guess_tells_nothing_then(world: World) -> None:
    assert world.guesses(HOSTILE, OWN_MAX) == [None] * OWN_MAX
    assert world.shows(HOSTILE, KEY) == "waits"
    assert world.shows(MODEST, KEY) == "ann", "another one does not wait"
    world.clock.advance(OWN_S)
    assert world.guesses(HOSTILE, 2, first=OWN_MAX) == [None, "waits"]
    world.clock.advance(OWN_S)
    assert world.shows(HOSTILE, KEY) == "ann"


def test_no_rate_of_guesses_gets_more_than_the_bound(world: World) -> None:
    looked_at = 0
    for _ in range(3600):
        world.clock.advance(1)
        looked_at += world.guesses(HOSTILE, 5, first=5 * looked_at).count(None)
    assert looked_at == pytest.approx(OWN_MAX + 3600 / OWN_S, abs=1)


def test_who_came_in_before_is_not_kept_out_by_a_neighbour(world: World) -> None:
    assert world.shows(HOSTILE, KEY) == "ann"
    world.guesses(HOSTILE, 3 * OWN_MAX)
    assert world.shows(HOSTILE, KEY) == "ann"
    assert world.shows(HOSTILE, OTHER) == "waits", "this one did not come in from there"
    world.file.write_text(f"bob read {OTHER}\n")
    world.keys.reload()
    assert world.shows(HOSTILE, KEY) == "waits", "it is taken back, and a guess like another"


def test_a_program_with_an_old_key_keeps_nobody_out_and_may_be_given_it(world: World) -> None:
    assert [world.shows(MODEST, "old-" + KEY) for _ in range(500)] == [None] * 500
    assert world.shows(MODEST, OTHER) == "bob"
    world.file.write_text(f"ann operate old-{KEY}\n")
    world.keys.reload()
    assert world.shows(MODEST, "old-" + KEY) == "ann"


def test_no_number_of_clients_keeps_one_out_that_was_not_wrong(world: World) -> None:
    for n in range(2 * ALL_MAX):
        world.guesses(f"2001:db8:0:{n:x}::/64", 2)
    assert world.shows("2001:db8:0:1::/64", "another guess") == "waits", "all have used theirs up"
    assert world.shows(MODEST, KEY) == "ann"
    assert world.shows("198.51.100.8", "typed wrong") is None
    assert world.shows("198.51.100.8", KEY) == "waits"
    world.clock.advance(OWN_S)
    assert world.shows("198.51.100.8", KEY) == "ann"


def test_what_is_remembered_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgewake.cloud.rights.tries.CLIENTS_MAX", 100)
    monkeypatch.setattr("edgewake.cloud.rights.shown_keys.KNOWN_MAX", 1000)
    for n in range(5000):
        world.guesses(f"client-{n}", 1)
        world.shows(f"friend-{n}", KEY)
    assert 90 < len(world.door._shown._tries._own) <= 100
    assert len(world.door._shown._known) == 1000
    world.clock.advance(OWN_S * OWN_MAX)
    world.guesses("client", 1)
    assert list(world.door._shown._tries._own) == ["client"], "the others may all be wrong again"


def test_wrong_keys_are_logged_by_client_at_a_pace_and_not_shown(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "edgewake.ops"):
        for n in range(LINES_MAX * 2):
            world.guesses(f"client-{n}", 5)
    assert len(caplog.messages) == LINES_MAX
    assert caplog.messages[0] == "client-0: a key that nobody has"
    assert "guess" not in caplog.text


async def test_the_guard_and_the_form_count_alike_by_client_behind_a_proxy(world: World) -> None:
    access = Access(
        world.keys,
        world.door,
        Clients(["127.0.0.1"]),
        *(Passes(world.clock, lambda: "secret", 60) for _ in range(2)),
    )
    app = FastAPI()
    pages.add(app, access)

    @app.get("/v1/devices")
    async def devices() -> PlainTextResponse:
        return PlainTextResponse("in")

    app.add_middleware(Guard, access=access)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://ops") as http:
        from_hostile = {"X-Forwarded-For": HOSTILE}
        for n in range(OWN_MAX // 2):
            key = {"X-API-Key": f"wrong-{n}"}
            assert (await http.get("/v1/devices", headers=from_hostile | key)).status_code == 401
        form = from_hostile | {"Origin": "http://ops", "Sec-Fetch-Site": "same-origin"}
        answers = [
            await http.post("/in", data={"key": f"typed-{n}"}, headers=form)
            for n in range(OWN_MAX // 2 + 1)
        ]
        assert [one.status_code for one in answers] == [401] * (OWN_MAX // 2) + [429]
        assert "try again in 6 s" in answers[-1].text
        assert answers[-1].headers["Retry-After"] == "6"
        late = await http.get("/v1/devices", headers=from_hostile | {"X-API-Key": KEY})
        assert late.status_code == 429
        assert late.json()["type"].endswith("too_many_tries")
        right = {"X-Forwarded-For": MODEST, "X-API-Key": KEY}
        assert (await http.get("/v1/devices", headers=right)).text == "in"
