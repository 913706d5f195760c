"""What somebody types is his: no load, no redraw and no end of his session takes it from him."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import BrowserContext, Page, Route, expect

from edgewake.protocol import topics
from edgewake.protocol.ops.device import DeviceState, DeviceStatus
from tests.chromium import ALL
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit
from tests.ops.screens.test_more import now_ms
from tests.ops.service import Ops
from tests.ops.test_app import declare, eventually

PAGE: Final = Path("cloud/page")
TAG: Final = re.compile(r"<(?:input|textarea|select)\b(?:\$\{[^}]*\}[^>]*?|=>|[^>])*>")


def tags() -> list[tuple[str, str]]:
    """Each place where something can be typed or chosen: its file, and what stands there."""
    files = (one for one in PAGE.rglob("*.js") if "vendor" not in one.parts)
    return [(one.name, tag) for one in files for tag in TAG.findall(one.read_text())]


def test_what_says_its_value_hears_what_is_typed() -> None:
    """Each redraw sets the value that is said, so a value that never changes undoes the typing."""
    found = tags()
    assert len(found) > 30
    heard = re.compile(r"onInput|onChange|\.\.\.\$\{(?:input|field)\(")
    deaf = [
        (name, tag)
        for name, tag in found
        if re.search(r"\b(?:value|checked)=\$", tag) and not heard.search(tag)
    ]
    assert deaf == []


def test_what_is_no_language_is_not_checked_for_its_spelling() -> None:
    """The text "false" is true where it is set as a property."""
    assert [(name, tag) for name, tag in tags() if 'spellcheck="' in tag] == []


@pytest.mark.services
@pytest.mark.asyncio(loop_scope="session")
async def test_what_is_typed_while_a_list_is_asked_for_stays(visit: Visit) -> None:
    page, may_come = visit.page, asyncio.Event()

    async def held(route: Route) -> None:
        await may_come.wait()
        await route.continue_()

    await page.route("**/v1/devices?*", held)
    await visit.open("#/devices")
    name = page.get_by_label("Name")
    await name.focus()
    await page.keyboard.type("no_")
    await expect(page.get_by_text("loading…")).to_be_visible()
    may_come.set()
    await expect(page.get_by_text("loading…")).to_have_count(0)
    await expect(name).to_have_value("no_")
    await page.keyboard.type("such_device")
    async with page.expect_response("**/v1/devices?*"):
        pass
    await expect(name).to_have_value("no_such_device")
    await page.keyboard.press("Enter")
    await expect(page.locator("main").get_by_text("No device here")).to_be_visible()
    assert "q=no_such_device" in await page.evaluate("location.hash")
    await expect(name).to_have_value("no_such_device")
    await page.unroute_all(behavior="wait")


FIELDS: Final = ":is(input:not([type]), input[type=search], textarea, .sql)"
"""Where somebody types a text; an editor of SQL is an element whose text is its own."""
FILLED: Final = f"""(mark) => {{
  const all = [...document.querySelectorAll("main {FIELDS}")];
  for (const one of all) {{
    if (one.matches(".sql")) one.textContent += mark;
    else one.value = one.name === "seq" || one.name === "epoch" ? "1" : one.value + mark;
    one.dispatchEvent(new Event("input", {{ bubbles: true }}));
  }}
  return all.length;
}}"""
VALUES: Final = f"""() => [...document.querySelectorAll("main {FIELDS}")]
  .map((one) => one.value ?? one.textContent)"""


async def typed_into_all(page: Page, address: str) -> None:
    """What stands in every field of a screen is there after the screen was loaded twice more."""
    await page.evaluate("(to) => (location.hash = to)", address)
    await expect(page.locator(f"main {FIELDS}").first).to_be_visible()
    await expect(page.get_by_text("loading…")).to_have_count(0)  # now all fields are there
    assert await page.evaluate(FILLED, "xyz") > 0, address
    before = await page.evaluate(VALUES)
    for _ in range(2):
        async with page.expect_response(lambda one: "/v1/" in one.url):
            pass
    assert await page.evaluate(VALUES) == before, address


@pytest.mark.services
@pytest.mark.asyncio(loop_scope="session")
async def test_no_screen_takes_what_is_typed_into_it(
    visit: Visit, context: BrowserContext, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    stream, device = unique("s"), unique("dev")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    status = DeviceStatus(device=device, state=DeviceState.ONLINE, received_at=now_ms())
    writer.put(topics.DEVICES, f"{device}|status", status.to_json())
    eventually(lambda: ops.client.get(f"/v1/devices/{device}"))
    addresses = [f"#/devices/{device}", f"#/boards/{unique('b')}?edit=1", "#/queries/new"]
    if ALL:
        addresses += ["#/devices", f"#/streams/{stream}", "#/summaries", "#/boards",
            "#/alerts?new=1", "#/trace", "#/ask"]  # fmt: skip
    pages = [await context.new_page() for _ in addresses]
    for page in pages:
        await page.goto(visit.url)
        await expect(page.get_by_role("link", name="Devices", exact=True)).to_be_visible()
    await asyncio.gather(*map(typed_into_all, pages, addresses))
    for page in pages:
        await page.close()


@pytest.mark.long
@pytest.mark.services
@pytest.mark.asyncio(loop_scope="session")
async def test_a_session_that_ends_takes_nothing_and_the_page_goes_on_after_the_next_login(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
) -> None:
    device = unique("dev")
    status = DeviceStatus(device=device, state=DeviceState.ONLINE, received_at=now_ms())
    writer.put(topics.DEVICES, f"{device}|status", status.to_json())
    eventually(lambda: ops.client.get(f"/v1/devices/{device}"))
    await visit.open(f"#/devices/{device}")
    note = visit.page.get_by_label("Note")
    await note.fill("behind the boiler, ask Ann")
    await visit.page.evaluate("fetch('/v1/session', { method: 'DELETE' })")
    alert = visit.page.locator("main").get_by_role("alert").filter(has_text="session is over")
    await expect(alert.first).to_be_visible()
    await expect(note).to_have_value("behind the boiler, ask Ann")
    ticket = ops.client.post("/v1/tickets").json()["path"]
    await visit.page.evaluate("(path) => fetch(path)", ticket)  # as another tab would
    await expect(alert).to_have_count(0)
    await expect(note).to_have_value("behind the boiler, ask Ann")
    await visit.page.get_by_role("button", name="Keep").click()
    await expect(visit.page.get_by_text("kept")).to_be_visible()
    note_kept = ops.client.get(f"/v1/devices/{device}").json()["note"]
    assert note_kept == "behind the boiler, ask Ann"
