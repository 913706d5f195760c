"""The browser of the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, Page, async_playwright, expect

from tests.services import PATIENCE_S

PROGRAM: Final = "/usr/bin/chromium"
ARGUMENTS: Final = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
]
SCALE: Final = 0.5
"""Pixels of the device for one of a page: drawing is most of what a page costs, and no test looks
at single pixels."""
PATIENCE_MS: Final = PATIENCE_S * 1000
AXE: Final = Path(__file__).with_name("js") / "node_modules/axe-core/axe.min.js"
AXE_RULES: Final = "{ runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice'] }"
expect.set_options(timeout=PATIENCE_MS)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A headless Chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS)
        yield browser
        await browser.close()


async def open_page(browser: Browser, **options: Any) -> Page:
    """A blank page that shares no cookies with others, and waits as long as a busy machine needs;
    close it.
    """
    page = await browser.new_page(device_scale_factor=SCALE, **options)
    page.set_default_timeout(PATIENCE_MS)
    return page


async def accessibility_faults(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds wrong with a page as it is now: (rule, the elements)."""
    await page.evaluate(AXE.read_text())
    found = await page.evaluate(f"axe.run(document, {AXE_RULES})")
    return [
        (one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found["violations"]
    ]
