"""Fixtures of the page tests: a Kafka, an access server, and a Chromium that notes what a page
asked for and complained about.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, expect

from edgewake.cloud.kafka.config import KafkaConfig
from tests.chromium import chromium, open_page
from tests.page.world import AccessServer, Writer
from tests.services import STAYS, run_kafka


@pytest.fixture(scope="package")
def page_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaConfig]:
    """A Kafka for the page alone."""
    with run_kafka(tmp_path_factory.mktemp("page-kafka"), *STAYS) as service:
        yield KafkaConfig(bootstrap=service.bootstrap)


@pytest.fixture(scope="package")
def writer(page_kafka: KafkaConfig) -> Writer:
    """Writes readings and results into it."""
    return Writer(page_kafka)


@pytest.fixture(scope="package")
def one_server(
    page_kafka: KafkaConfig, writer: Writer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AccessServer]:
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
    async with chromium() as browser:
        yield browser


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

    async def until(self, condition: str, argument: Any = None) -> None:
        """Wait until a JavaScript function of the stats (and `argument`) holds."""
        script = (
            f"(argument) => window.edgewake && (({condition})(window.edgewake.stats, argument))"
        )
        await self.page.wait_for_function(script, arg=argument, polling=100)


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser, server: AccessServer) -> AsyncIterator[Visit]:
    """The page, open."""
    page = await open_page(browser, viewport={"width": 1440, "height": 900})
    visit = Visit(page)
    page.on("request", lambda request: visit.requests.append(request.url))
    page.on(
        "console",
        lambda message: (
            visit.complaints.append(message.text) if message.type in {"error", "warning"} else None
        ),
    )
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    await page.goto(server.url + "/town", wait_until="domcontentloaded")
    yield visit
    await page.unroute_all(behavior="wait")
    await page.close()


@pytest_asyncio.fixture(loop_scope="session")
async def live(browser: Browser, server: AccessServer) -> AsyncIterator[Visit]:
    """The Live page, open and connected."""
    async with watching(browser, server.url) as visit:
        yield visit


@asynccontextmanager
async def watching(browser: Browser, address: str) -> AsyncIterator[Visit]:
    """The Live page of a server, open and connected."""
    page = await open_page(browser, viewport={"width": 1440, "height": 900})
    visit = Visit(page)
    page.on("request", lambda request: visit.requests.append(request.url))
    page.on("console", lambda message: _note(visit, message))
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    await page.goto(address, wait_until="domcontentloaded")
    await expect(page.locator("#connection")).to_have_attribute("data-state", "live")
    yield visit
    await page.close()


def _note(visit: Visit, message: ConsoleMessage) -> None:
    """A 503 is none: it asks to come again, to who asks for the past of more streams than one
    reader may have at once, as of all those that other tests left.
    """
    if message.type in {"error", "warning"} and "status of 503" not in message.text:
        visit.complaints.append(message.text)
