"""The agent's own page in Chromium, from its own process."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Literal

import pytest
from playwright.async_api import Browser, expect

from edgewake.edge.page.page import render
from tests.chromium import accessibility_faults, open_page
from tests.edge.helpers import opened, put
from tests.services import Process, free_ports

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_person_sees_what_is_measured_what_waits_and_what_was_lost(
    browser: Browser, tmp_path: Path
) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "agent.toml"
    config.write_text(f'device = "shed"\ndata_dir = "{tmp_path}/data"\n')
    with opened(tmp_path / "data") as events:
        put(events, range(3))
        events.stream("speed").lose(5, "queue_full")
        put(events, range(3, 4))
    command = [
        sys.executable,
        "-m",
        "edgewake.deploy.cli",
        "agent",
        "page",
        "--config",
        str(config),
        "--port",
        str(port),
    ]
    with Process(command, tmp_path / "log") as process:
        process.wait_for(f"http://127.0.0.1:{port}/")
        page = await open_page(browser)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("requestfailed", lambda request: complaints.append(request.url))
        await page.goto(f"http://127.0.0.1:{port}/")
        await expect(page.locator("#state")).to_have_text("The agent does not run.")
        await expect(page.locator("#measured tbody tr")).to_contain_text(["speed"])
        await expect(page.locator("#waits")).to_contain_text("readings")
        await expect(page.locator("#lost")).to_have_text("5 readings (queue_full)")
        assert (
            await page.locator("#lost .bad").evaluate("each => getComputedStyle(each).fontWeight")
            == "600"
        ), "its style is let in"
        with opened(tmp_path / "data") as events:
            put(events, range(4, 7), stream="fresh")
        await expect(page.locator("#measured tbody tr")).to_have_count(2)
        assert [text for text in complaints if "favicon" not in text and "404" not in text] == []
        await page.close()


@pytest.mark.long
async def test_a_phone_shows_all_of_it(browser: Browser) -> None:
    source = {"state": "running", "error": "", "taken": 1_234_567, "dropped": 12, "refused": {}}
    log = {
        "backlog_readings": 7, "backlog_bytes": 2048, "oldest_unacked_s": 3.5,
        "lost": {"quota": 1}, "streams": {"kitchen_climate": {"accepted": 1_234_567, "waiting": 7}},
    }  # fmt: skip
    status = {"running": False, "device": "shed", "log": log, "sources": {"kitchen_board": source}}
    latest = {"kitchen_climate": {"t": 0, "temperature": 21.4, "note": "x" * 60}}
    page = await open_page(browser, viewport={"width": 390, "height": 844})
    # A page without a script cannot become new in another way: axe would have it stoppable.
    is_still = re.sub("<meta http-equiv=.refresh.[^>]*>", "", render(status, latest))
    await page.set_content(is_still)
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await expect(page.locator("#sources")).to_contain_text("was running")
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for theme in themes:
        await page.emulate_media(color_scheme=theme)
        assert await accessibility_faults(page) == [], theme
    await page.close()
