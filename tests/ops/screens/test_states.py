"""Each list of the operations pages while it loads, when there is nothing, and when it is refused.

What a screen asks is answered by the real API; the test changes only status and emptiness.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Route, expect

from tests.ops.screens.conftest import Visit, log_in, visiting
from tests.ops.service import Ops

pytestmark = [pytest.mark.services, pytest.mark.asyncio(loop_scope="session")]
REFUSALS = [503, *(pytest.param(status, marks=pytest.mark.long) for status in (404, 409, 422))]
WITH_SESSION = ("#/devices", "#/history?show=events")
"""Lists on which the short form ends a session, which takes a login each."""
LISTS = {
    "#/boards": "/v1/boards",
    "#/alerts": "/v1/raised",
    "#/devices": "/v1/devices",
    "#/streams": "/v1/streams",
    "#/queries": "/v1/queries",
    "#/summaries": "/v1/summaries",
    "#/letters": "/v1/dead-letters",
    "#/clients": "/v1/clients",
    "#/history": "/v1/problems",
    "#/history?show=events": "/v1/history",
    "#/audit": "/v1/audit",
    "#/deliveries": "/v1/deliveries",
    "#/erasures": "/v1/erasures",
    "#/gaps": "/v1/streams",
    "#/alerts?show=destinations": "/v1/destinations",
}
PAGES = {
    "#/devices/none": "/v1/devices/none",
    "#/streams/none": "/v1/streams/none",
    "#/queries/none": "/v1/queries/none",
    "#/letters/999999999": "/v1/dead-letters/999999999",
    "#/boards/none": "/v1/boards/none",
    "#/alerts/none": "/v1/alerts/none",
    "#/erasures/none": "/v1/erasures/none",
    "#/": "/v1/overview",
    "#/trace?token=1.1": "/v1/acks/1.1",
    "#/enrolment": "/v1/claims",
    "#/faults": "/v1/faults",
}
"""Pages of one thing, or of several, and what each asks for first."""
EMPTY = {
    "#/boards": "No board yet",
    "#/alerts": "Nothing is wrong",
    "#/devices": "No device here",
    "#/streams": "No stream yet",
    "#/queries": "No query is registered",
    "#/summaries": "Nothing is summed up yet",
    "#/letters": "Nothing was refused",
    "#/clients": "Nobody reads here now",
    "#/history": "No problem in the last 90 days",
    "#/history?show=events": "Nothing happened yet",
    "#/audit": "Nothing was changed",
    "#/deliveries": "Nothing is delivered to a webhook",
    "#/erasures": "Nothing was erased",
    "#/gaps": "No stream yet",
    "#/alerts?show=destinations": "Nobody is told yet",
}
Answer = Callable[[Route], Awaitable[None]]


def every_third(addresses: Iterable[str]) -> list[Any]:
    """All of them, of which `make test` looks at a third: one program shows each state of all."""
    return [
        pytest.param(one, marks=[pytest.mark.long] if number % 3 else [])
        for number, one in enumerate(addresses)
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def one_visit(context: BrowserContext, ops: Ops) -> AsyncIterator[Visit]:
    async with visiting(context, ops) as visit:
        yield visit


@pytest_asyncio.fixture(loop_scope="session")
async def visit(one_visit: Visit, ops: Ops) -> AsyncIterator[Visit]:
    """The same page for all tests here: each opens its list anew."""
    yield one_visit
    await one_visit.page.unroute_all(behavior="wait")


@pytest_asyncio.fixture(loop_scope="session")
async def visit_that_ends(visit: Visit, ops: Ops) -> AsyncIterator[Visit]:
    """A visit whose session a test may end."""
    yield visit
    await log_in(visit, ops)


async def answered(visit: Visit, address: str, answer: Answer) -> None:
    """Open a list, or the page of one thing, whose question is answered so."""
    path = f"{LISTS[address]}?*" if address in LISTS else PAGES[address]
    await visit.open("#/none")
    await visit.page.route(f"**{path}", answer)
    await visit.open(address)


@pytest.mark.parametrize("address", every_third(LISTS))
async def test_a_list_without_items_says_what_would_be_there(visit: Visit, address: str) -> None:
    async def emptied(route: Route) -> None:
        response = await route.fetch()
        found = await response.json()
        await route.fulfill(
            response=response, json=[] if isinstance(found, list) else {**found, "items": []}
        )

    await answered(visit, address, emptied)
    await expect(visit.page.locator("main").get_by_text(EMPTY[address])).to_be_visible()


@pytest.mark.parametrize("status", REFUSALS)
@pytest.mark.parametrize("address", [*every_third(LISTS), *every_third(PAGES)])
async def test_a_refusal_stands_where_the_list_would_with_a_way_to_try_again(
    visit: Visit, address: str, status: int
) -> None:
    detail = f"no such thing <b>{status}</b>"
    is_refused = True

    async def refused(route: Route) -> None:
        if not is_refused:
            return await route.continue_()
        return await route.fulfill(
            status=status,
            content_type="application/problem+json",
            body=json.dumps({"status": status, "title": "t", "detail": detail}),
        )

    await answered(visit, address, refused)
    alert = visit.page.get_by_role("alert").filter(has_text=detail)
    await expect(alert.first).to_be_visible()
    is_refused = False
    await alert.first.get_by_role("button", name="Try again").click()
    await expect(alert).to_have_count(0)


@pytest.mark.parametrize(
    "address",
    [*every_third(LISTS), *every_third(PAGES)],
)
async def test_a_list_that_is_slow_says_that_it_loads(visit: Visit, address: str) -> None:
    is_answered = asyncio.Event()

    async def held(route: Route) -> None:
        await is_answered.wait()
        await route.continue_()

    await answered(visit, address, held)
    await expect(visit.page.get_by_text("loading…").first).to_be_visible()
    is_answered.set()
    await expect(visit.page.get_by_text("loading…")).to_have_count(0)


@pytest.mark.parametrize("status", REFUSALS)
async def test_a_question_that_is_refused_says_why_and_can_be_asked_again(
    visit: Visit, status: int
) -> None:
    page, detail = visit.page, f"no such answer <b>{status}</b>"

    async def refused(route: Route) -> None:
        body = json.dumps({"status": status, "title": "t", "detail": detail})
        await route.fulfill(status=status, content_type="application/problem+json", body=body)

    await visit.open("#/none")
    await page.route("**/v1/sql", refused)
    await visit.open("#/ask?sql=SELECT%201%20AS%20one")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.locator(".fault")).to_have_text(detail)
    await page.unroute("**/v1/sql")
    await page.get_by_role("button", name="Ask").click()
    await expect(page.get_by_role("region", name="Answer")).to_contain_text("1")
    await expect(page.locator(".fault")).to_have_count(0)


async def test_codes_and_passwords_that_are_not_there_are_said(visit: Visit) -> None:
    async def none(route: Route) -> None:
        await route.fulfill(json={"items": [], "devices": [], "certificates": []})

    await visit.open("#/none")
    for path in ("claims", "credentials"):
        await visit.page.route(f"**/v1/{path}", none)
    await visit.open("#/enrolment")
    for said in ("No code is good now", "No device has a password or a certificate"):
        await expect(visit.page.get_by_text(said)).to_be_visible()


@pytest.mark.parametrize(
    "address",
    [one if one in WITH_SESSION else pytest.param(one, marks=pytest.mark.long) for one in LISTS],
)
async def test_a_session_that_ended_leads_to_the_login_and_keeps_the_address(
    visit_that_ends: Visit, ops: Ops, address: str
) -> None:
    visit = visit_that_ends
    await visit.open(address)
    await expect(visit.page.get_by_text("loading…")).to_have_count(0)
    await visit.page.evaluate("fetch('/v1/session', { method: 'DELETE' })")
    await expect(visit.page.get_by_role("alert").first).to_contain_text("Your session is over")
    assert await visit.page.evaluate("location.hash") == address
    assert ops.process.is_running()


async def test_the_way_to_a_device_by_keyboard_alone(context: BrowserContext, ops: Ops) -> None:
    async with visiting(context, ops) as visit:
        page = visit.page
        await page.reload()
        await expect(page.get_by_role("link", name="Devices", exact=True)).to_be_visible()
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
        await _tab_to(visit, "Devices")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Name")).to_be_visible()
        await _tab_to(visit, "Name", attempts=40)
        await page.keyboard.type("no_such")
        async with page.expect_response(lambda answer: "/v1/devices?" in answer.url):
            pass  # the list is looked at again, which takes away nothing of what was typed
        await page.keyboard.type("_device")
        await page.keyboard.press("Enter")
        await page.wait_for_function("location.hash.includes('q=no_such_device')")
        await expect(page.locator("main").get_by_text("No device here")).to_be_visible()
        await expect(page.get_by_label("Name")).to_have_value("no_such_device")


async def _tab_to(visit: Visit, name: str, *, attempts: int = 30) -> None:
    """Press Tab until what is called so has the focus."""
    focused = (
        "() => { const on = document.activeElement; "
        "return (on.labels?.[0]?.textContent ?? on.textContent).trim(); }"
    )
    for _ in range(attempts):
        await visit.page.keyboard.press("Tab")
        if await visit.page.evaluate(focused) == name:
            return
    raise AssertionError(f"{name} is not reached by {attempts} times Tab")
