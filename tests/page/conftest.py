"""Fixtures of the page tests: a Kafka, an access server, and a Chromium that notes what a page asked for and complained about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from edgewake.cloud.kafka.config import KafkaConfig
from tests.page.world import AccessServer, Writer
from tests.services import run_kafka

CHROMIUM = "/usr/bin/chromium"
PATIENCE_S = 60
"""A loaded machine is slow; what does not happen at all fails a little later."""
expect.set_options(timeout=PATIENCE_S * 1000)
SCALE = 0.5
"""Pixels of the device for one of the page: drawing the map is most of what a page costs, and no test looks at single pixels."""
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


@pytest.fixture(scope="package")
def page_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaConfig]:
    """A Kafka for the page alone."""
    with run_kafka(tmp_path_factory.mktemp("page-kafka")) as service:
        yield KafkaConfig(bootstrap=service.bootstrap)


@pytest.fixture(scope="package")
def writer(page_kafka: KafkaConfig) -> Writer:
    """Writes readings and results into it."""
    return Writer(page_kafka)


@pytest.fixture(scope="package")
def one_server(page_kafka: KafkaConfig, writer: Writer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessServer]:
    """The one access server that the tests share."""
    access = AccessServer(page_kafka, tmp_path_factory.mktemp("page-access")).start()
    try:
        yield access
    finally:
        access.process.stop()


@pytest.fixture
def server(one_server: AccessServer) -> AccessServer:
    """An access server that serves, whatever the test before did to it."""
    return one_server if one_server.process.is_running() else one_server.start()


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        await chromium.close()


@dataclass
class Visit:
    """An open page, and what it asked for and complained about."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def stats(self) -> dict[str, Any]:
        """`window.edgewake.stats`."""
        found: dict[str, Any] = await self.page.evaluate("window.edgewake.stats")
        return found

    async def until(self, condition: str, argument: Any = None, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until a JavaScript function of the stats (and `argument`) holds."""
        script = f"(argument) => window.edgewake && (({condition})(window.edgewake.stats, argument))"
        await self.page.wait_for_function(script, arg=argument, timeout=timeout_s * 1000, polling=100)


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser, server: AccessServer) -> AsyncIterator[Visit]:
    """The page, open."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900}, device_scale_factor=SCALE)
    page = await context.new_page()
    visit = Visit(page)
    page.on("request", lambda request: visit.requests.append(request.url))
    page.on("console", lambda message: visit.complaints.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    await page.goto(server.url, wait_until="domcontentloaded")
    yield visit
    await context.close()
