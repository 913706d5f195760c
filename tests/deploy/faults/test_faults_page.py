"""The faults card on the real system: parts die, freeze and are cut off, and nothing is wrong."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.chromium import accessibility_faults, chromium, open_page
from tests.deploy.test_up import command, port_base
from tests.services import PATIENCE_S, Process

pytestmark = pytest.mark.services
LONG_MS = 2 * PATIENCE_S * 1000


@pytest.mark.long
async def test_faults_are_done_by_buttons_and_the_ledger_finds_nothing_wrong(
    tmp_path: Path,
) -> None:
    base = port_base()
    data, ops = tmp_path / "data", f"http://127.0.0.1:{base + 2}"
    arguments = command(data, base, "--faults", "--no-simulators")
    with Process(arguments, tmp_path / "log") as process:
        process.wait_for("Edgewake is running.", timeout_s=2 * PATIENCE_S)
        key = {"X-API-Key": (data / "secrets" / "ops.key").read_text().strip()}
        async with chromium() as browser:
            page = await open_page(browser, viewport={"width": 1440, "height": 900})
            path = httpx.post(f"{ops}/v1/tickets", headers=key).json()["path"]
            await page.goto(ops + path)
            await page.get_by_role("link", name="Faults").click()
            await _watch(page)
            await page.set_viewport_size({"width": 390, "height": 844})
            assert await page.evaluate("document.documentElement.scrollWidth") <= 390
            assert await accessibility_faults(page) == []
        process.signal(signal.SIGINT)
        assert process.stop() == 0


async def _watch(page: Page) -> None:
    """Kill a bridge, freeze the sequencer, cut the devices off; readings and windows go on."""
    verdict = page.get_by_label("Verdict of the ledger")
    await expect(verdict).to_be_visible(timeout=LONG_MS)
    await _until_more(page, "shown")
    told = page.get_by_role("list", name="What was done")
    for button, text in (
        ("Kill bridge-1", "bridge-1 killed"),
        ("Freeze sequencer-1 for 10 s", "sequencer-1 frozen"),
        ("Cut devices for 10 s", "devices cut"),
    ):
        await page.get_by_role("button", name=button).click()
        newest = told.get_by_role("listitem").first
        await expect(newest).to_contain_text(text)
        await expect(newest).to_contain_text("over after", timeout=LONG_MS)
        await _until_more(page, "shown")
    await _until_more(page, "windows")
    assert await _faults(page) == {"lost": 0, "twice": 0, "wrong": 0}
    assert await page.get_by_role("button", name="Kill ledger").count() == 0


async def _verdict(page: Page) -> dict[str, int]:
    found: dict[str, int] = await page.evaluate(
        "async () => (await (await fetch('/v1/faults')).json()).verdict"
    )
    return found


async def _faults(page: Page) -> dict[str, int]:
    found = await _verdict(page)
    return {name: found[name] for name in ("lost", "twice", "wrong")}


async def _until_more(page: Page, name: str) -> None:
    """Until this number is one larger than what has been given by now: all of it came out."""
    now = await _verdict(page)
    wanted = now["taken"] if name == "shown" else now[name] + 1
    await page.wait_for_function(
        """async ([name, wanted]) => {
          const answer = await fetch("/v1/faults");
          return answer.ok && (await answer.json()).verdict[name] >= wanted;
        }""",
        arg=[name, wanted],
        polling=500,
        timeout=LONG_MS,
    )
