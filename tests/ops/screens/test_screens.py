"""The operations pages in a real browser, on a running operations API and Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.ops.device import DeviceSeen
from tests.chromium import LOOKS, PATIENCE_MS, accessibility_faults, open_page
from tests.ops.conftest import Writer
from tests.ops.screens.conftest import Visit, answer_faults
from tests.ops.service import Ops, running
from tests.ops.test_app import declare, eventually, sql
from tests.services import Kafka, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="session")
SCREENS = (
    "#/", "#/devices", "#/devices/none", "#/streams", "#/queries", "#/queries/new", "#/ask",
    "#/letters", "#/letters/999999999", "#/clients", "#/audit", "#/history",
    "#/history?show=events", "#/trace", "#/trace?token=1.1", "#/summaries", "#/summaries/none.none",
    "#/boards", "#/alerts", "#/gaps", "#/enrolment", "#/deliveries", "#/erasures",
    "#/boards?source=none&field=none", "#/alerts?show=destinations", "#/faults", "#/none",
)  # fmt: skip

CUT = """() => [...document.querySelectorAll("main .rows, main .states span, main .texts li")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.ariaLabel)"""
"""Tables of which a phone does not show all."""


async def test_the_overview_says_first_what_needs_attention_and_leads_there(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
):
    device = unique("dev")
    now = time.time_ns() // 1_000_000
    letter = DeadLetter(
        reason=RejectReason.JSON, detail="why", topic="t", part="bridge-1", received_at=now
    )
    writer.put(topics.DEAD, device, b"{broken", letter.headers())
    problem = visit.page.get_by_role("link", name="(json)")
    await expect(problem).to_be_visible()
    await problem.click()
    row = visit.page.get_by_role("row").filter(has_text=device)
    await expect(row).to_contain_text("{broken")
    await row.get_by_role("button", name="Give back").click()
    await expect(row.locator(".said")).not_to_be_empty()
    assert [one for one in visit.complaints if "status of 4" not in one] == []


@pytest.mark.long
async def test_devices_are_found_by_state_shown_and_forgotten(
    visit: Visit, writer: Writer, unique: Callable[[str], str]
):
    device = unique("dev")
    now = time.time_ns() // 1_000_000
    seen = DeviceSeen(device=device, last_seen=now, skew_ms=0, records=3)
    writer.put(topics.DEVICES, f"{device}|seen", seen.to_json())
    await visit.open("#/devices?state=online")
    await visit.page.get_by_role("link", name=device).click()
    await expect(visit.page.get_by_text("plain MQTT device")).to_be_visible()
    visit.page.on("dialog", lambda dialog: dialog.accept())
    await visit.page.get_by_role("button", name=f"Forget {device}").click()
    await expect(visit.page.get_by_role("alert")).to_contain_text("nothing is known of device")


async def test_a_query_is_checked_mended_registered_paused_and_removed(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
):
    stream, name = unique("s"), unique("q")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    await visit.open("#/queries/new")
    text = visit.page.get_by_label("Query file")
    await text.fill(sql(name, stream).replace("avg(", "agv("))
    await visit.page.get_by_role("button", name="Check").click()
    await expect(visit.page.locator(".fault").first).to_contain_text("agv")
    await text.fill(sql(name, stream))
    await visit.page.get_by_role("button", name="Check").click()
    await expect(visit.page.get_by_text("Good;")).to_be_visible()
    await visit.page.get_by_role("button", name="Register").click()
    await expect(visit.page.get_by_role("button", name="Pause")).to_be_visible()
    await visit.page.get_by_role("button", name="Pause").click()
    await expect(visit.page.get_by_role("button", name="Resume")).to_be_visible()
    visit.page.on("dialog", lambda dialog: dialog.accept())
    await visit.page.get_by_role("button", name="Remove").click()
    wait_until(lambda: ops.client.get(f"/v1/queries/{name}").status_code == 404, "it is removed")


@pytest.mark.long
async def test_a_stream_shows_its_fields_and_leads_to_sql(
    visit: Visit, ops: Ops, writer: Writer, unique: Callable[[str], str]
):
    stream = unique("s")
    declare(writer, stream)
    eventually(lambda: ops.client.get(f"/v1/streams/{stream}"))
    await visit.open(f"#/streams/{stream}")
    await expect(visit.page.get_by_role("region", name="Fields")).to_contain_text("km/h")
    await visit.page.get_by_role("link", name="its newest readings by SQL").click()
    await expect(visit.page.locator("#sql")).to_have_text(
        f'SELECT * FROM "{stream}" ORDER BY t DESC LIMIT 20'
    )


async def test_a_wrong_question_is_answered_in_words(visit: Visit):
    await visit.open("#/ask?sql=DROP%20TABLE%20x")
    await visit.page.get_by_role("button", name="Ask").click()
    await expect(visit.page.locator(".fault")).to_contain_text("SELECT")


async def test_names_with_markup_stay_text(
    visit: Visit, writer: Writer, unique: Callable[[str], str]
):
    marked = f"<img src=x onerror=alert(1)>{unique('x')}"
    now = time.time_ns() // 1_000_000
    letter = DeadLetter(
        reason=RejectReason.JSON, detail=marked, topic="t", part="bridge-1", received_at=now
    )
    writer.put(topics.DEAD, "dev", marked.encode(), letter.headers())
    await visit.open("#/letters")
    await expect(visit.page.get_by_role("cell", name=marked, exact=True).first).to_be_visible()
    assert await visit.page.locator("main img").count() == 0


@pytest.mark.long
async def test_who_has_no_session_is_led_to_the_login_and_one_that_ends_is_said(
    visit: Visit, browser: Browser, ops: Ops
):
    stranger = await open_page(browser)
    await stranger.goto(ops.url)
    await expect(stranger.get_by_label("Key")).to_be_visible()
    await stranger.close()
    await visit.page.evaluate("fetch('/v1/session', { method: 'DELETE' })")
    await expect(visit.page.get_by_role("alert")).to_contain_text("Your session is over")


@pytest.mark.parametrize(("width", "theme"), LOOKS)
async def test_every_screen_is_accessible_and_no_wider_than_its_window(
    visit: Visit, width: int, theme: str
):
    await visit.page.set_viewport_size({"width": width, "height": 900})
    await visit.page.evaluate("(theme) => (document.documentElement.dataset.theme = theme)", theme)
    await visit.page.route("**/v1/faults", answer_faults)
    for address in SCREENS:
        await visit.open(address)
        await expect(visit.page.locator("main .card").first).to_be_visible()
        await expect(visit.page.get_by_text("loading…")).to_have_count(0)
        assert await visit.page.evaluate("document.documentElement.scrollWidth") <= width, address
        faults = await accessibility_faults(visit.page)
        assert faults == [], f"{address}: {json.dumps(faults)}"
        if width == 390:
            assert await visit.page.evaluate(CUT) == [], f"{address}: cut on a phone"
    await visit.page.unroute_all(behavior="wait")


async def test_a_server_that_is_away_is_said_and_what_was_seen_goes_on_when_it_is_back(
    kafka: Kafka, browser: Browser, tmp_path: Path
):
    with running(kafka.bootstrap, tmp_path) as own:
        context = await browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        await page.goto(own.url + own.client.post("/v1/tickets").json()["path"])
        await expect(page.get_by_text("devices online")).to_be_visible()
        own.process.stop()
        await expect(page.get_by_role("alert")).to_contain_text(
            "the operations API is away; what you see is of"
        )
        await expect(page.get_by_text("devices online")).to_be_visible()
        own.process.start()
        alert = page.locator("main").get_by_role("alert")
        await expect(alert).to_contain_text("the server was started again")
        await expect(alert).to_contain_text("edgewake open")
        await expect(page.get_by_text("devices online")).to_be_visible()
        wait_until(lambda: own.client.get("/readyz").is_success, "its tables are read")
        other = await context.new_page()
        await other.goto(own.url + own.client.post("/v1/tickets").json()["path"])
        await expect(alert).to_have_count(0)
        await expect(page.get_by_text("devices online")).to_have_count(1)
        await context.close()


@pytest.mark.parametrize(("width", "theme"), LOOKS)
async def test_the_page_to_log_in_has_no_accessibility_fault(
    browser: Browser, ops: Ops, width: int, theme: Literal["light", "dark"]
) -> None:
    page = await open_page(browser, viewport={"width": width, "height": 900}, color_scheme=theme)
    await page.goto(f"{ops.url}/in")
    await expect(page.get_by_label("Key")).to_be_visible()
    assert await page.evaluate("document.documentElement.dataset.theme") == theme
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await accessibility_faults(page) == []
    await page.close()
