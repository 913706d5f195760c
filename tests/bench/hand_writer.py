"""Readings that somebody sends by hand to a whole system, and how long each takes to a page."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from playwright.async_api import Page

from edgewake.deploy.plan import Ports
from tests.chromium import chromium, open_page
from tests.deploy.test_up import command, port_base
from tests.services import Process

SENT: Final = 10
SETTLE_S: Final = 30.0
"""What the start of the system costs for a while is not asked here."""
FIRST: Final = 100.0
"""The first reading's value; each following one is one more, so each is told from all others."""
FIELD: Final = "temperature"
STREAM: Final = "climate_by_hand"
IS_SHOWN: Final = """([stream, text]) => document.querySelector(
  `article[data-stream="${stream}"] .figure`)?.textContent === text"""
"""Looked at before each frame."""


@contextmanager
def system(folder: Path) -> Iterator[Ports]:
    """All of Edgewake with its demo's load, as `edgewake up` starts it."""
    base = port_base()
    folder.mkdir()
    with Process(command(folder / "data", base), folder / "up.log") as process:
        process.wait_for("Edgewake is running.", timeout_s=300)
        time.sleep(SETTLE_S)
        yield Ports(base)


def by_mqtt(ports: Ports, value: float) -> list[str]:
    """How a person sends a reading with an MQTT client."""
    topic = f"ew/v1/kitchen/up/{STREAM}"
    text = f'{{"{FIELD}": {value}}}'
    return ["mosquitto_pub", "-p", str(ports.mqtt), "-q", "1", "-t", topic, "-m", text]


def by_http(ports: Ports, value: float) -> list[str]:
    """And with curl."""
    address = f"http://127.0.0.1:{ports.http}/ew/v1/kitchen/up/{STREAM}"
    return ["curl", "-sSf", address, "--json", f'{{"{FIELD}": {value}}}']


async def shown_ms(ports: Ports) -> dict[str, list[float]]:
    """Milliseconds from the start of the command to the figure on the open Live page."""
    async with chromium() as browser:
        page = await open_page(browser, viewport={"width": 1440, "height": 900})
        await page.goto(f"http://127.0.0.1:{ports.access(0)}/")
        await _shown(page, by_http(ports, FIRST), FIRST)  # the stream is made by it
        found: dict[str, list[float]] = {"MQTT": [], "HTTP": []}
        for i in range(1, 2 * SENT + 1):
            name, way = ("MQTT", by_mqtt) if i % 2 else ("HTTP", by_http)
            found[name].append(await _shown(page, way(ports, FIRST + i), FIRST + i))
        return found


async def _shown(page: Page, send: list[str], value: float) -> float:
    began = time.monotonic()
    subprocess.run(send, check=True, capture_output=True, timeout=60)
    await page.wait_for_function(IS_SHOWN, arg=[STREAM, f"{value:.0f}"])
    return 1000 * (time.monotonic() - began)
