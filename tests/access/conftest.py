"""Two access servers on the session's Kafka, with one cursor key: every test may kill neither."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, key_file, server
from tests.chromium import chromium, open_page
from tests.services import Kafka


@pytest.fixture(scope="package")
def access_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="package")
def cursor_key(access_directory: Path) -> Path:
    return key_file(access_directory)


@pytest.fixture(scope="package")
def access_a(kafka: Kafka, access_directory: Path, cursor_key: Path) -> Iterator[Server]:
    with server(
        access_directory, KafkaConfig(bootstrap=kafka.bootstrap), cursor_key, heartbeat_s=1
    ) as running:
        yield running


@pytest.fixture(scope="package")
def access_b(kafka: Kafka, access_directory: Path, cursor_key: Path) -> Iterator[Server]:
    with server(
        access_directory, KafkaConfig(bootstrap=kafka.bootstrap), cursor_key, heartbeat_s=1
    ) as running:
        yield running


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A headless Chromium. Tests that use it run on the session's loop."""
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(loop_scope="session")
async def browser_page(browser: Browser) -> AsyncIterator[Page]:
    """A blank page."""
    page = await open_page(browser)
    yield page
    await page.close()
