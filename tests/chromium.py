"""The browser of the tests."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

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
AXE_RULES: Final = "['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice']"
FAULTS: Final = f"""async () => {{
  const options = {{ runOnly: {AXE_RULES}, resultTypes: ["violations"] }};
  const {{ violations }} = await axe.run(document, options);
  return violations.map(({{ id, nodes }}) => [id, nodes.map(({{ html }}) => html.slice(0, 200))]);
}}"""
"""Only the faults leave the browser: all else that axe tells is a megabyte of each page."""
ALL: Final = os.environ.get("EDGEWAKE_SCREENS") == "all"
"""Set by `make test-screens`: every theme at every width."""
WIDTHS: Final = (390, 1440, 3840)
LOOKS: Final = (
    [(width, theme) for width in WIDTHS for theme in ("light", "dark")]
    if ALL
    else [(390, "light"), (1440, "dark")]
)
"""Window width and theme of a page that is looked at. The short form has each theme once, and the
widths at which most goes wrong: what a theme makes wrong are colours, which are the same in every
width."""
ZONE: Final = "UTC"
"""Of every browser of the tests, wherever they run: they type times of day, and read them."""
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
    page = await browser.new_page(device_scale_factor=SCALE, timezone_id=ZONE, **options)
    page.set_default_timeout(PATIENCE_MS)
    return page


@asynccontextmanager
async def shared_context(browser: Browser, **options: Any) -> AsyncIterator[BrowserContext]:
    """For pages that are loaded one after the other and may share cookies: what a site sent once
    is there, so each costs half of the processor that `open_page` takes.
    """
    context = await browser.new_context(device_scale_factor=SCALE, timezone_id=ZONE, **options)
    context.set_default_timeout(PATIENCE_MS)
    # The last page that closes would take the process that drew it along.
    await context.new_page()
    yield context
    await context.close()


async def accessibility_faults(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds wrong with a page as it is now: (rule, the elements)."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text())
    return [(rule, elements) for rule, elements in await page.evaluate(FAULTS)]
