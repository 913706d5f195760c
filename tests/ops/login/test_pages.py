"""The address that `edgewake up` prints, opened in a browser."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import expect

from tests.chromium import chromium, open_page
from tests.deploy.test_up import port_base, running

FIRST_CHANGE = """() => new Promise((found, failed) => {
  const feed = new EventSource("/v1/live")
  feed.onopen = () => found("open")
  feed.onerror = () => failed("refused")
})"""


async def test_the_printed_link_leads_into_the_pages_and_every_byte_is_our_own(
    tmp_path: Path,
) -> None:
    base = port_base()
    with running(
        tmp_path / "data", base, "--only", "kafka", "--only", "ops", log=tmp_path / "up.log"
    ) as process:
        link = re.search(rf"http://127\.0\.0\.1:{base + 2}/in\?ticket=\S+", process.output())
        assert link, process.output()
        key = (tmp_path / "data/secrets/ops.key").read_text().split()[-1]
        assert key not in process.output()
        own = f"http://127.0.0.1:{base + 2}/"
        async with chromium() as browser:
            page = await open_page(browser)
            complaints: list[str] = []
            foreign: list[str] = []
            page.on("console", lambda m: complaints.append(f"{m.text} {m.location}"))
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on(
                "request",
                lambda request: (
                    foreign.append(request.url) if not request.url.startswith(own) else None
                ),
            )
            await page.goto(link[0])
            await expect(page.get_by_text("devices online")).to_be_visible()
            await page.get_by_role("link", name="API", exact=True).click()
            await expect(page.get_by_text("/v1/devices", exact=True).first).to_be_visible()
            # "Try it out": reading, and changing something, by the session's cookie alone.
            await page.locator("#operations-devices-devices_v1_devices_get").click()
            await page.get_by_role("button", name="Try it out").click()
            await page.get_by_role("button", name="Execute").click()
            await expect(
                page.locator(".live-responses-table tbody .response-col_status").first
            ).to_contain_text("200")
            assert (
                await page.evaluate(
                    "async () => (await fetch('/v1/tickets', {method: 'POST'})).status"
                )
                == 201
            )
            assert await page.evaluate(FIRST_CHANGE) == "open", "the live tail is for browsers, too"
            assert await page.evaluate("() => document.cookie") == "", "no script reads the session"
            assert [url for url in foreign if not url.startswith("data:")] == []
            assert complaints == []
            again = await open_page(browser)
            await again.goto(link[0])
            await expect(again.get_by_text("This link was used already")).to_be_visible()
            await expect(again.get_by_label("Key")).to_be_focused()
            await again.keyboard.type(key)
            await again.keyboard.press("Enter")
            await expect(again.get_by_text("devices online")).to_be_visible()
