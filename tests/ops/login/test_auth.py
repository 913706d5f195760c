"""Who may do what: keys, roles, sessions, pages of others."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from edgewake.cloud.client_share import Clients
from edgewake.cloud.ops.login.auth import LOGGED_CHARS_MAX, Access, Guard
from edgewake.cloud.ops.login.key_door import KeyDoor
from edgewake.cloud.ops.login.keys import Keys
from edgewake.cloud.ops.login.sessions import (
    SESSION_LIFE_S,
    TICKET_LIFE_S,
    Passes,
)
from edgewake.protocol.clock import FakeClock

KEY, READ_KEY = "k" * 32, "r" * 32
OWN = {"Origin": "http://ops", "Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "ops.key"
    path.write_text(f"# rotated in May\nann operate {KEY}\nwall read {READ_KEY} # the display\n")
    return path


@pytest.fixture
def access(key_file: Path) -> Access:
    numbers = iter(range(10_000))
    clock = FakeClock()
    keys = Keys(key_file)
    return Access(
        keys,
        KeyDoor(keys, clock),
        Clients(["127.0.0.1"]),
        *(
            Passes(clock, lambda: f"t{next(numbers)}", life_s)
            for life_s in (TICKET_LIFE_S, SESSION_LIFE_S)
        ),
    )


async def ask(
    access: Access, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> httpx.Response:
    guarded = Guard(PlainTextResponse("in"), access=access)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=guarded), base_url="http://ops"
    ) as client:
        return await client.request(method, path, headers=headers)


def cookie(access: Access, key: str = KEY) -> dict[str, str]:
    """Of a new session."""
    holder = access.keys.find(key.encode())
    assert holder
    return {"Cookie": f"other=1; edgewake_ops_80={access.sessions.issue(holder)}"}


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx's ASGI transport names no port."""
    monkeypatch.setattr("edgewake.cloud.ops.login.auth.cookie_name", lambda _: "edgewake_ops_80")


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 401),
        ({"Authorization": f"Bearer {KEY}"}, 200),
        ({"Authorization": f"bearer {KEY}"}, 200),
        ({"X-API-Key": KEY}, 200),
        ({"X-API-Key": READ_KEY}, 200),
        ({"Authorization": f"Basic {KEY}"}, 401),
        ({"Authorization": f"Bearer {KEY}x"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"X-API-Key": ""}, 401),
        ({"Authorization": "Bearer wrong", "X-API-Key": KEY}, 401),
        ({"Cookie": "edgewake_ops_80=made-up"}, 401),
    ],
)
async def test_a_key_opens_and_nothing_else_does(
    access: Access, headers: dict[str, str], expected: int
) -> None:
    assert (await ask(access, "/v1/devices", headers)).status_code == expected


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/openapi.json", "/in"])
async def test_health_metrics_and_the_description_are_open(access: Access, path: str) -> None:
    assert (await ask(access, path)).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/healthz/",
        "http://ops//healthz",
        "/v1/nothing",
        "/v1/live",
        "/metrics/../v1/devices",
        "/docs/start.js",
        "/in/",
    ],
)
async def test_what_only_looks_open_is_not(access: Access, path: str) -> None:
    assert (await ask(access, path)).status_code == 401


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_people_are_led_to_the_login(access: Access, path: str) -> None:
    answer = await ask(access, path)
    assert (answer.status_code, answer.headers["location"]) == (303, "/in")


@pytest.mark.parametrize(
    ("path", "expected"), [("/v1/queries", 403), ("/v1/tickets", 200), ("/v1/session", 200)]
)
async def test_who_may_only_read_changes_nothing_but_his_own_session(
    access: Access, path: str, expected: int
) -> None:
    assert (await ask(access, path, {"X-API-Key": READ_KEY}, "POST")).status_code == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (OWN, 200),
        ({"Origin": "http://ops"}, 200),
        ({}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Origin": "http://ops:81"}, 403),
        ({"Origin": "http://ops", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://ops", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_a_cookie_changes_things_only_from_our_own_page(
    access: Access, more: dict[str, str], expected: int
) -> None:
    assert (await ask(access, "/v1/queries", cookie(access) | more, "POST")).status_code == expected
    assert (await ask(access, "/v1/queries", cookie(access) | more)).status_code == 200, (
        "reading is no change"
    )


async def test_a_session_has_the_role_of_its_key_and_ends_with_it(
    access: Access, key_file: Path
) -> None:
    reading = cookie(access, READ_KEY)
    assert (await ask(access, "/v1/queries", reading | OWN, "POST")).status_code == 403
    key_file.write_text(f"ann operate {KEY}\n")
    access.keys.reload()
    assert (await ask(access, "/v1/queries", reading)).status_code == 401


async def test_a_key_is_replaced_without_a_restart(
    access: Access, key_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    key_file.write_text(f"ann operate {KEY}\nann2 operate {'n' * 32}\n")
    access.keys.reload()
    assert [
        (await ask(access, "/v1/devices", {"X-API-Key": key})).status_code
        for key in (KEY, "n" * 32, READ_KEY)
    ] == [200, 200, 401]
    key_file.write_text("short\n")
    with caplog.at_level(logging.ERROR):
        access.keys.reload()
    assert "keeping the previous keys: key_file = " in caplog.text
    assert (await ask(access, "/v1/devices", {"X-API-Key": KEY})).status_code == 200


async def test_every_change_is_logged_with_a_name_and_without_a_key(
    access: Access, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="edgewake.ops"):
        await ask(access, "/v1/queries?ticket=secret", {"X-API-Key": KEY}, "POST")
        await ask(access, "/v1/devices/d", {"X-API-Key": READ_KEY}, "DELETE")
        await ask(access, "/v1/devices", {"X-API-Key": KEY})
    found = [
        (r.holder, r.method, r.path, r.status)
        for r in caplog.records
        if getattr(r, "event", "") == "ops.audit"
    ]
    assert found == [("ann", "POST", "/v1/queries", 200), ("wall", "DELETE", "/v1/devices/d", 403)]
    assert not any(
        secret in record.getMessage()
        for record in caplog.records
        if record.name == "edgewake.ops"
        for secret in (KEY, READ_KEY, "secret")
    )


async def test_who_read_a_dead_letter_is_logged_and_who_read_a_list_is_not(
    access: Access, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="edgewake.ops"):
        for path in ("/v1/dead-letters", "/v1/dead-letters/7", "/v1/devices"):
            await ask(access, path, {"X-API-Key": READ_KEY})
        await ask(access, "/v1/sql", {"X-API-Key": READ_KEY}, "POST")
    found = [
        (r.holder, r.method, r.path, r.status)
        for r in caplog.records
        if getattr(r, "event", "") == "ops.audit"
    ]
    wanted = [("GET", "/v1/dead-letters"), ("GET", "/v1/dead-letters/7"), ("POST", "/v1/sql")]
    assert found == [("wall", *one, 200) for one in wanted]


async def test_what_a_page_asks_while_somebody_types_a_rule_is_not_in_the_audit(
    access: Access, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="edgewake.ops"):
        for path in ("/v1/alerts:check", "/v1/queries:check", "/v1/queries:preview"):
            assert (await ask(access, path, {"X-API-Key": KEY}, "POST")).status_code == 200
        assert (
            await ask(access, "/v1/alerts:check", {"X-API-Key": READ_KEY}, "POST")
        ).status_code == 403
    found = [
        (r.holder, r.path, r.status)
        for r in caplog.records
        if getattr(r, "event", "") == "ops.audit"
    ]
    assert found == [("ann", "/v1/queries:preview", 200), ("wall", "/v1/alerts:check", 403)]


async def test_a_long_question_in_the_audit_says_that_it_is_cut(
    access: Access, caplog: pytest.LogCaptureFixture
) -> None:
    async def asked(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["audit"] = "x" * int(scope["path"].rsplit("/", 1)[-1])
        await Response("")(scope, receive, send)

    transport = httpx.ASGITransport(app=Guard(asked, access=access))
    with caplog.at_level(logging.INFO, logger="edgewake.ops"):
        async with httpx.AsyncClient(transport=transport, base_url="http://ops") as client:
            for length in (LOGGED_CHARS_MAX, LOGGED_CHARS_MAX + 1):
                await client.post(f"/v1/{length}", headers={"X-API-Key": KEY})
    details = [r.detail for r in caplog.records if getattr(r, "event", "") == "ops.audit"]
    assert details == ["x" * LOGGED_CHARS_MAX, "x" * (LOGGED_CHARS_MAX - 1) + "…"]


async def test_a_read_that_takes_long_is_answered_only_while_its_key_is_there(
    access: Access, key_file: Path
) -> None:
    """A preview may take a minute.

    A change that is made is told, though its key is gone meanwhile.
    """

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        key_file.write_text(f"ann operate {'n' * 32}\n")
        access.keys.reload()
        await Response("secret")(scope, receive, send)

    async def asked(method: str, path: str) -> tuple[int, bool]:
        key_file.write_text(f"ann operate {KEY}\n")
        access.keys.reload()
        transport = httpx.ASGITransport(app=Guard(slow, access=access))
        async with httpx.AsyncClient(transport=transport, base_url="http://ops") as client:
            answer = await client.request(method, path, headers={"X-API-Key": KEY})
        return answer.status_code, "secret" in answer.text

    assert [await asked("GET", "/v1/acks/t"), await asked("POST", "/v1/sql")] == [(401, False)] * 2
    assert await asked("POST", "/v1/queries") == (200, True)
