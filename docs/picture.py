"""Take the pictures of the pages from a running system.

    make demo                                                in one terminal, two minutes or more
    python docs/picture.py [http://127.0.0.1:8700/town]      in another: writes docs/page.png
    python docs/picture.py alerts LINK                       LINK: what `edgewake login` prints;
                                                             writes docs/alerts.png
    python docs/picture.py boards LINK                       of a board `kitchen` with a chart

It waits until the page is live and every panel has something to show, and ends with exit code 1
where that does not come to pass.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE_S = 300
IS_FULL = """() => {
  const stats = window.edgewake?.stats;
  const tiles = ["tile-p50", "tile-vehicles", "cpu"];
  const texts = tiles.map((id) => document.getElementById(id).textContent);
  return stats?.state === "live" && stats.shown.vehicles >= 10 && stats.shown.points >= 100
    && stats.shown.windows >= 8 && stats.shown.parts >= 8
    && document.querySelectorAll("#streets li").length >= 3 && !texts.includes("–");
}"""
SCREENS = {
    "alerts": ("#/alerts", "() => document.querySelector('.raised') !== null"),
    "boards": ("#/boards/kitchen", "() => document.querySelector('.grid .uplot') !== null"),
}
"""Screens of the operations pages: address, and when it has something to show."""


def main() -> None:
    """Take it."""
    screen = sys.argv[1] if sys.argv[1:] and sys.argv[1] in SCREENS else "page"
    url = sys.argv[-1] if len(sys.argv) > 1 else "http://127.0.0.1:8700/town"
    target = Path(__file__).parent / f"{screen}.png"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
        page.goto(url)
        address, is_full = SCREENS.get(screen, ("", IS_FULL))
        if address:
            page.wait_for_selector("nav#rail a")
            page.evaluate("(to) => (location.hash = to)", address)
        page.wait_for_function(is_full, timeout=PATIENCE_S * 1000, polling=500)
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    main()
