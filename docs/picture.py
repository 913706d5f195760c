"""Take the README's picture of the page from a running system.

    make demo                                            in one terminal, two minutes or more
    python docs/picture.py [http://127.0.0.1:8700/town]      in another: writes docs/page.png

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


def main() -> None:
    """Take it."""
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8700/town"
    target = Path(__file__).parent / "page.png"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
        page.goto(url)
        page.wait_for_function(IS_FULL, timeout=PATIENCE_S * 1000, polling=500)
        page.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    main()
