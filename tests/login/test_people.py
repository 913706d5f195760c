"""People log in at a real identity provider, by its own form, and are one person everywhere."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect
from websockets.asyncio.client import connect

from tests.access.sockets.talk import Talk
from tests.chromium import accessibility_faults, open_page
from tests.feeds import unique
from tests.login.conftest import OPS_KEY, PEOPLE, RENEW_S, World, through_the_form
from tests.rights.forge import write
from tests.services import PATIENCE_S

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]

ENDS_S = 2.0
"""In which what is open by a right ends when the right does; see docs/rights.md."""


@asynccontextmanager
async def visit(browser: Browser, url: str) -> AsyncIterator[Page]:
    """A page in a browser that holds nothing."""
    page = await open_page(browser)
    await page.goto(url)
    yield page
    await page.close()


async def log_in(page: Page, login: str) -> None:
    """From a form of ours through the provider's."""
    await page.get_by_role("link", name="Log in as yourself").click()
    await through_the_form(page, login)


async def cookies_of(page: Page) -> dict[str, str]:
    """What a browser holds for the servers."""
    found = await page.context.cookies()
    return {one["name"]: one["value"] for one in found if one["name"].startswith("edgewake_login")}


async def asked(page: Page, path: str, **options: Any) -> tuple[int, Any]:
    """What a page's own program is answered."""
    script = """async ([path, options]) => {
      const answer = await fetch(path, options);
      return [answer.status, await answer.text()];
    }"""
    status, text = await page.evaluate(script, [path, options])
    return status, json.loads(text) if text else None


@asynccontextmanager
async def socket_of(world: World, cookies: dict[str, str]) -> AsyncIterator[Talk]:
    """A socket that these cookies opened, with a subscription."""
    headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
    url = world.access.replace("http", "ws") + "/v1/ws"
    async with connect(url, compression=None, additional_headers=headers) as connected:
        socket = Talk(connected)
        await socket.say("subscribe", streams=[world.mine.name])
        await socket.until("subscribed")
        yield socket


async def sql(page: Page, stream: str) -> tuple[int, Any]:
    """The devices of a stream, in SQL."""
    return await asked(
        page,
        "/v1/sql",
        method="POST",
        headers={"Content-Type": "application/json"},
        body=json.dumps({"sql": f"SELECT DISTINCT device FROM {stream}"}),
    )


async def eventually(page: Page, path: str, status: int) -> Any:
    """Ask until it is answered so."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found, body = await asked(page, path)
            if found == status:
                return body
            await asyncio.sleep(0.2)


async def test_a_person_logs_in_once_and_is_known_at_access_push_and_operations(
    browser: Browser, login_world: World
) -> None:
    async with visit(browser, login_world.access) as page:
        form = page.get_by_role("region", name="Log in")
        await expect(form).to_be_visible()
        await expect(page.locator("#live")).to_be_hidden()
        assert await accessibility_faults(page) == []
        await log_in(page, "ann")
        await expect(
            page.get_by_role("article", name=f"Stream {login_world.mine.name}")
        ).to_be_visible()
        await expect(
            page.get_by_role("article", name=f"Stream {login_world.other.name}")
        ).to_have_count(0)
        await expect(page.get_by_role("button", name="Log out Ann")).to_be_visible()
        assert page.url == f"{login_world.access}/"
        found = await page.context.cookies(login_world.access)
        (held,) = [one for one in found if one["name"].startswith("edgewake_login")]
        assert (held["httpOnly"], held["sameSite"], held["path"]) == (True, "Lax", "/")
        assert "staff" not in held["value"], "nobody reads it"

        _, latest = await asked(page, f"/v1/latest/{login_world.mine.name}")
        cursor = latest["cursor"]

        await page.goto(login_world.ops)
        await expect(page.get_by_role("link", name="Devices", exact=True)).to_be_visible()
        status, _ = await asked(
            page,
            "/v1/boards/mine",
            method="PUT",
            headers={"Content-Type": "application/json", "If-None-Match": "*"},
            body=json.dumps({"title": "Mine", "cards": []}),
        )
        assert status in (200, 201)
        _, audit = await asked(page, "/v1/audit")
        assert [one["holder"] for one in audit["items"]][:1] == ["Ann (ann)"]

        await page.goto(f"{login_world.push}/docs")
        lease = {
            "subscription": {"streams": [login_world.mine.name]},
            "cursor": cursor,
            "endpoint": {"url": "http://127.0.0.1:9/wake"},
        }
        status, granted = await asked(
            page,
            "/v1/leases",
            method="POST",
            headers={"Content-Type": "application/json"},
            body=json.dumps(lease),
        )
        assert status == 201, granted
        status, refused = await asked(
            page,
            "/v1/leases",
            method="POST",
            headers={"Content-Type": "application/json"},
            body=json.dumps(lease | {"subscription": {"streams": [login_world.other.name]}}),
        )
        assert status == 422, refused


@pytest.mark.long
async def test_a_person_with_grants_is_shown_what_they_name_on_the_pages_of_operations(
    browser: Browser, login_world: World
) -> None:
    bus, hidden, absent = login_world.bus, login_world.hidden, unique("van")
    async with visit(browser, f"{login_world.ops}/in") as page:
        await log_in(page, "dora")
        await expect(page.get_by_role("button", name="Log out")).to_be_visible()
        await page.goto(f"{login_world.ops}/#/devices")
        await expect(page.get_by_role("link", name=bus, exact=True)).to_be_visible()
        await expect(page.get_by_role("link", name=hidden)).to_have_count(0)
        await page.goto(f"{login_world.ops}/#/devices/{bus}")
        await expect(page.get_by_role("link", name=login_world.mine.name)).to_be_visible()

        shown = []
        for device in (hidden, absent):
            status, problem = await asked(page, f"/v1/devices/{device}")
            await page.goto(f"{login_world.ops}/#/devices/{device}")
            told = page.get_by_role("alert").filter(has_text=device)
            await expect(told.first).to_be_visible()
            texts = [text.replace(device, "NAME") for text in await told.all_inner_texts()]
            shown.append((status, json.dumps(problem).replace(device, "NAME"), texts))
        assert shown[0] == shown[1]
        assert shown[0][0] == 404

        # The session is renewed each RENEW_S: some question is under way when it is due.
        ends = time.monotonic() + 2 * RENEW_S
        while time.monotonic() < ends:
            status, found = await sql(page, login_world.mine.name)
            assert (status, found.get("rows")) == (200, [[bus]]), found
        status, _ = await sql(page, login_world.other.name)
        assert status == 422
        status, refused = await asked(page, "/v1/overview")
        assert (status, "needs the action view" in refused["detail"]) == (403, True)
    async with visit(browser, f"{login_world.ops}/in") as page:  # the control: who sees the whole
        await log_in(page, "ann")
        await expect(page.get_by_role("button", name="Log out")).to_be_visible()
        await page.goto(f"{login_world.ops}/#/devices")
        for device in (bus, hidden):
            await expect(page.get_by_role("link", name=device, exact=True)).to_be_visible()


@pytest.mark.long
async def test_the_town_asks_who_one_is_too_and_a_link_is_kept_through_the_login(
    browser: Browser, login_world: World
) -> None:
    async with visit(browser, f"{login_world.access}/town") as page:
        await expect(page.get_by_role("region", name="Log in")).to_be_visible()
    to_stream = f"/#/streams/{login_world.mine.name}"
    async with visit(browser, login_world.access + to_stream) as page:
        await log_in(page, "ann")
        await expect(page.get_by_role("region", name="Latest of each device")).to_be_visible()
        assert page.url.endswith(to_stream)


async def test_who_has_no_right_is_told_so_and_can_be_somebody_else(
    browser: Browser, login_world: World
) -> None:
    async with visit(browser, login_world.access) as page:
        await log_in(page, "bob")
        told = "You are logged in as Bob, and none of your groups (visitors) may read here."
        await expect(page.get_by_role("alert").first).to_have_text(told)
        for path in ("/v1/streams", f"/v1/streams/{login_world.mine.name}/events"):
            assert (await asked(page, path))[0] == 403
        await page.goto(login_world.ops)
        await expect(
            page.get_by_text("none of your groups (visitors) gives a right here")
        ).to_be_visible()
        held = await cookies_of(page)
        assert httpx.get(f"{login_world.ops}/v1/devices", cookies=held).status_code == 403
        await page.get_by_role("link", name="as somebody else").click()
        await through_the_form(page, "carl")
        await expect(page.get_by_role("link", name="Devices", exact=True)).to_be_visible()
        status, problem = await asked(
            page,
            "/v1/boards/his",
            method="PUT",
            headers={"Content-Type": "application/json"},
            body="{}",
        )
        assert (status, "has the role read" in problem["detail"]) == (403, True)
        await page.goto(login_world.access)
        _, latest = await asked(page, f"/v1/latest/{login_world.mine.name}")
        assert {row["device"] for row in latest["rows"]} == {"car-2"}


@pytest.mark.long
async def test_a_page_of_others_changes_nothing_by_a_login(
    browser: Browser, login_world: World
) -> None:
    async with visit(browser, login_world.access) as page:
        await log_in(page, "ann")
        await expect(page.get_by_role("button", name="Log out Ann")).to_be_visible()
        held = await cookies_of(page)
    with httpx.Client(cookies=held, headers={"Origin": "http://elsewhere.example"}) as client:
        for url in (
            f"{login_world.access}/v1/tickets",
            f"{login_world.access}/login/out",
            f"{login_world.push}/v1/leases",
            f"{login_world.ops}/v1/tickets",
        ):
            assert client.post(url, json={}).status_code == 403, url


async def test_who_logs_out_is_out_everywhere_also_with_a_copy_of_the_cookie(
    browser: Browser, login_world: World
) -> None:
    async with visit(browser, login_world.access) as page:
        await log_in(page, "ann")
        leave = page.get_by_role("button", name="Log out Ann")
        await expect(leave).to_be_visible()
        copied = await cookies_of(page)
        path = f"/v1/streams/{login_world.mine.name}/events"
        async with (
            httpx.AsyncClient(
                base_url=login_world.access, cookies=copied, timeout=PATIENCE_S
            ) as thief,
            thief.stream("GET", path) as stream,
            socket_of(login_world, copied) as socket,
        ):
            assert stream.status_code == 200
            await leave.click()
            left_at = time.monotonic()
            said = "".join([piece async for piece in stream.aiter_text()])
            assert 'event: end\ndata: {"reason":"revoked"' in said.replace(": {", ": {")
            assert (await socket.until("end"))["reason"] == "revoked"
            assert (await socket.until_closed())[0] == 1008
            assert time.monotonic() - left_at < ENDS_S + 0.5
            assert (await thief.get("/v1/streams")).status_code == 401
            async with asyncio.timeout(RENEW_S + PATIENCE_S):
                while (await thief.get(f"{login_world.ops}/v1/devices")).status_code != 401:
                    await asyncio.sleep(0.2)
        await page.get_by_role("button", name="Yes, sign me out").click()
        await expect(page.get_by_role("region", name="Log in")).to_be_visible()
        assert await cookies_of(page) == {}
        await page.get_by_role("link", name="Log in as yourself").click()
        await expect(page.get_by_placeholder("Enter any login")).to_be_visible()


async def test_what_the_provider_takes_back_ends_within_seconds_and_a_stream_goes_on_else(
    browser: Browser, login_world: World
) -> None:
    async with visit(browser, login_world.access) as page:
        await log_in(page, "carl")
        card = page.get_by_role("article", name=f"Stream {login_world.mine.name}")
        await expect(card).to_be_visible()
        await asyncio.sleep(2 * RENEW_S)  # the time itself is what is tried
        login_world.mine.send("car-2", fields={"speed": [77.0]})
        await expect(card).to_contain_text("77")
        async with socket_of(login_world, await cookies_of(page)) as socket:
            login_world.provider.tell("people", PEOPLE | {"carl": {"name": "Carl", "groups": []}})
            began = time.monotonic()
            try:
                assert (await socket.until("end"))["reason"] in ("expired", "revoked")
                assert time.monotonic() - began < RENEW_S + ENDS_S + 0.5
                await expect(page.get_by_role("alert").first).to_contain_text(
                    "none of your groups (none)"
                )
            finally:
                login_world.provider.tell("people", PEOPLE)
        await expect(card).to_be_visible()
        login_world.provider.tell("forget")
        await expect(page.get_by_role("link", name="Log in as yourself")).to_be_visible()
        assert await cookies_of(page) == {}


@pytest.mark.long
async def test_new_keys_of_the_provider_and_of_the_sessions(
    browser: Browser, login_world: World
) -> None:
    async with visit(browser, login_world.access) as page:
        await log_in(page, "ann")
        leave = page.get_by_role("button", name="Log out Ann")
        await expect(leave).to_be_visible()
        login_world.provider.tell("keys")
        old = login_world.session_keys.read_text()
        write(login_world.session_keys, f"{secrets.token_hex(32)}\n{old}")
        before = await cookies_of(page)
        await asyncio.sleep(2 * RENEW_S)
        assert (await asked(page, "/v1/streams"))[0] == 200
        assert await cookies_of(page) != before
    async with visit(browser, login_world.ops) as page:
        await log_in(page, "ann")
        await expect(page.get_by_role("link", name="Devices", exact=True)).to_be_visible()


@pytest.mark.long
async def test_a_provider_that_dies_and_comes_back(browser: Browser, login_world: World) -> None:
    provider = login_world.provider
    async with visit(browser, login_world.access) as page, visit(browser, login_world.ops) as late:
        await log_in(page, "ann")
        leave = page.get_by_role("button", name="Log out Ann")
        await expect(leave).to_be_visible()
        await late.goto(f"{login_world.ops}/login")
        await expect(late.get_by_placeholder("Enter any login")).to_be_visible()
        provider.process.kill()
        try:
            await asyncio.sleep(2 * RENEW_S)
            assert (await asked(page, "/v1/streams"))[0] == 200, "who is in stays in"
            back = f"{login_world.ops}/login/callback?state=x&code=y"
            answer = await late.goto(back)
            assert answer is not None
            assert answer.status == 400
            await expect(late.get_by_role("alert")).to_contain_text("begin again")
        finally:
            provider.start()
        await late.get_by_role("link", name="Try again").click()
        await through_the_form(late, "ann")
        await expect(late.get_by_role("link", name="Devices", exact=True)).to_be_visible()
        # It forgot everybody when it died: sessions that it does not know are over.
        await eventually(page, "/v1/streams", 401)


async def test_a_key_works_beside_logins(login_world: World) -> None:
    answer = httpx.get(f"{login_world.ops}/v1/devices", headers={"X-API-Key": OPS_KEY})
    assert answer.status_code == 200
    me = httpx.get(f"{login_world.access}/login/me").json()
    assert me == {"login": "/login", "name": None, "has_key": False}
