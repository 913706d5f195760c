"""A running operations API, and a browser that is logged in there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from edgewake.protocol.ops.faults import FaultsView
from tests.chromium import chromium, shared_context
from tests.ops.service import Ops, running
from tests.services import Kafka

FAULTS: Final = FaultsView.model_validate(
    {
        "parts": [{"name": "bridge-1", "state": "ready", "restarts": 0}],
        "links": [{"name": "devices", "text": "devices → broker", "is_cut": False}],
        "faults": [],
        "verdict": None,
    }
)
"""What `edgewake up --faults` would answer; without it there is nothing to break."""


@pytest.fixture(scope="package")
def ops(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    folder = tmp_path_factory.mktemp("screens")
    passwords = f'password_file = "{folder / "credentials" / "passwords"}"\n'
    with running(kafka.bootstrap, folder, passwords) as service:
        yield service


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@dataclass
class Visit:
    """A page that is logged in, and what it complained about."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)

    async def open(self, address: str) -> None:
        await self.page.evaluate("(to) => (location.hash = to)", address)


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    async with shared_context(browser, viewport={"width": 1440, "height": 900}) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def visit(context: BrowserContext, ops: Ops) -> AsyncIterator[Visit]:
    async with visiting(context, ops) as visit:
        yield visit


@asynccontextmanager
async def visiting(context: BrowserContext, ops: Ops) -> AsyncIterator[Visit]:
    """A page of its own, that is logged in."""
    page = await context.new_page()
    visit = Visit(page, ops.url)
    page.on(
        "console",
        lambda message: (
            visit.complaints.append(message.text) if message.type in {"error", "warning"} else None
        ),
    )
    page.on("pageerror", lambda error: visit.complaints.append(str(error)))
    await log_in(visit, ops)
    yield visit
    await page.evaluate("localStorage.clear()")
    await page.close()


async def log_in(visit: Visit, ops: Ops) -> None:
    await visit.page.goto(ops.url + ops.client.post("/v1/tickets").json()["path"])
    await expect(visit.page.get_by_role("link", name="Devices", exact=True)).to_be_visible()


async def answer_faults(route: Route) -> None:
    """The answer to `/v1/faults` of a system that has them."""
    await route.fulfill(content_type="application/json", body=FAULTS.model_dump_json())
