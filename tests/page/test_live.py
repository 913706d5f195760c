"""The Live page in a real browser: every stream and query is found and shown by itself."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.chromium import LOOKS, accessibility_faults, open_page
from tests.page.conftest import Visit
from tests.page.world import AccessServer, Writer

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(loop_scope="session")
async def live(browser: Browser, server: AccessServer) -> AsyncIterator[Visit]:
    page = await open_page(browser, viewport={"width": 1440, "height": 900})
    visit = Visit(page)
    page.on("request", lambda request: visit.requests.append(request.url))
    page.on(
        "console",
        lambda message: (
            visit.complaints.append(message.text) if message.type in {"error", "warning"} else None
        ),
    )
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    await page.goto(server.url, wait_until="domcontentloaded")
    await expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    yield visit
    await page.close()


def furnish(writer: Writer, name: str) -> None:
    """A stream of climate, one with places, one with texts and states, and a query with a
    window.
    """
    for i in range(20):
        writer.reading(
            f"{name}_climate", "kitchen", temperature=21.0 + math.sin(i / 3), humidity=48.0 + i / 10
        )
        writer.reading(
            f"{name}_climate", "cellar", temperature=14.0 + math.cos(i / 3), humidity=71.0
        )
    for i in range(3):
        writer.reading(
            f"{name}_bikes",
            f"bike-{i}",
            lat=48.137 + i / 300,
            lon=11.575 + i / 200,
            battery=80.0 - i,
        )
    for i in range(6):
        writer.reading(
            f"{name}_doors", "gate", open=i % 2 == 0, reason="badge" if i % 3 else "button"
        )
    writer.register(f"{name}_busiest")
    start = time.time_ns() // 1_000_000 // 10_000 * 10_000 - 20_000
    for room, count in (("kitchen", 7), ("cellar", 3)):
        writer.result(f"{name}_busiest", start, start + 10_000, room=room, readings=count)


async def test_a_message_of_a_new_stream_is_on_the_screen_by_itself(live: Visit, writer: Writer):
    writer.reading("byhand_climate", "kitchen", temperature=21.4)
    card = live.page.get_by_role("article", name="Stream byhand_climate")
    await expect(card.locator('[data-field="temperature"] .figure')).to_have_text("21.4")
    await expect(card).to_contain_text("1 device")
    writer.reading("byhand_climate", "kitchen", temperature=22.5)
    await expect(card.locator('[data-field="temperature"] .figure')).to_have_text("22.5")
    assert live.complaints == []


async def test_each_kind_of_field_is_shown_as_suits_it(live: Visit, writer: Writer):
    furnish(writer, "kinds")
    climate = live.page.get_by_role("article", name="Stream kinds_climate")
    await expect(climate).to_contain_text("2 devices")
    bikes = live.page.get_by_role("article", name="Stream kinds_bikes")
    await expect(bikes.get_by_role("region", name="Map of kinds_bikes")).to_be_visible()
    doors = live.page.get_by_role("article", name="Stream kinds_doors")
    await expect(doors.locator('[data-field="open"] .figure')).to_have_text("off")
    await expect(doors.locator('[data-field="reason"] li').first).to_contain_text("badge")
    busiest = live.page.get_by_role("article", name="Query kinds_busiest")
    await expect(busiest.locator(".bars li")).to_have_text(["kitchen7", "cellar3"])
    await expect(busiest).to_contain_text("open")
    writer.watermark("kinds_busiest", time.time_ns() // 1_000_000)
    await expect(busiest).to_contain_text("final")
    assert live.complaints == []


async def test_a_stream_opens_with_charts_devices_and_events_and_its_link_can_be_sent(
    live: Visit, writer: Writer
):
    furnish(writer, "opened")
    await live.page.get_by_role("link", name="opened_climate").click()
    await expect(live.page.get_by_role("img", name="temperature over time")).to_be_visible()
    await expect(
        live.page.get_by_role("region", name="Latest of each device").locator("tbody tr")
    ).to_have_count(2)
    await expect(live.page.locator(".events li")).to_have_count(20)
    address = live.page.url
    await live.page.goto("about:blank")
    await live.page.goto(address)
    await expect(live.page.get_by_role("region", name="Latest of each device")).to_contain_text(
        "cellar"
    )
    await live.page.go_back()
    assert live.complaints == []


async def test_search_finds_by_any_part_of_the_name_and_by_keyboard(live: Visit, writer: Writer):
    furnish(writer, "sought")
    await expect(live.page.get_by_role("article", name="Stream sought_doors")).to_be_visible()
    await live.page.keyboard.press("/")
    await live.page.keyboard.type("sought_d")
    await expect(live.page.locator("article[data-stream]")).to_have_count(1)
    await live.page.keyboard.type("zzz")
    await expect(live.page.get_by_text("Nothing is called")).to_be_visible()


async def test_names_and_texts_with_markup_stay_text(live: Visit, writer: Writer):
    writer.reading(
        "markup_texts", "<b>dev</b>", note="<img src=x onerror=alert(1)>", lat=1.0, lon=2.0
    )
    card = live.page.get_by_role("article", name="Stream markup_texts")
    await expect(card.locator('[data-field="note"] li')).to_contain_text(
        "<img src=x onerror=alert(1)>"
    )
    assert await card.locator("img").count() == 0
    assert live.complaints == []


@pytest.mark.parametrize(("width", "theme"), LOOKS)
async def test_no_sideways_scroll_and_no_accessibility_fault(
    live: Visit, writer: Writer, width: int, theme: str
):
    furnish(writer, "axe")
    await live.page.set_viewport_size({"width": width, "height": 900})
    await live.page.evaluate("(theme) => (document.documentElement.dataset.theme = theme)", theme)
    for address in ("#/", "#/streams/axe_climate", "#/queries/axe_busiest", "#/streams/none"):
        await live.page.evaluate("(to) => (location.hash = to)", address)
        await expect(live.page.locator("main .card").first).to_be_visible()
        assert await live.page.evaluate("document.documentElement.scrollWidth") <= width, address
        faults = await accessibility_faults(live.page)
        assert faults == [], address


async def test_a_server_that_goes_and_comes_back_is_said_and_nothing_is_counted_twice(
    live: Visit, writer: Writer, server: AccessServer
):
    writer.reading("away_climate", "kitchen", temperature=1.0)
    card = live.page.get_by_role("article", name="Stream away_climate")
    await expect(card.locator(".figure")).to_have_text("1")
    server.process.stop()
    await expect(live.page.locator("#connection-seen")).to_contain_text("away")
    await expect(card.locator(".figure")).to_have_text("1")
    writer.reading("away_climate", "kitchen", temperature=2.0)
    server.start()
    await expect(card.locator(".figure")).to_have_text("2")
    counted = await live.page.evaluate("edgewakeLive.live.streams.get('away_climate').count")
    assert counted == 2
