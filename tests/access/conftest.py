"""Two access servers on the session's Kafka, with one cursor key: every test may kill neither."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, key_file, server
from tests.services import Kafka


@pytest.fixture(scope="package")
def access_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="package")
def cursor_key(access_directory: Path) -> Path:
    return key_file(access_directory)


@pytest.fixture(scope="package")
def access_a(kafka: Kafka, access_directory: Path, cursor_key: Path) -> Iterator[Server]:
    with server(access_directory, KafkaConfig(bootstrap=kafka.bootstrap), cursor_key, heartbeat_s=1) as running:
        yield running


@pytest.fixture(scope="package")
def access_b(kafka: Kafka, access_directory: Path, cursor_key: Path) -> Iterator[Server]:
    with server(access_directory, KafkaConfig(bootstrap=kafka.bootstrap), cursor_key, heartbeat_s=1) as running:
        yield running


@pytest.fixture
async def browser_page() -> AsyncIterator[Page]:
    """A blank page in headless Chromium."""
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=arguments)
        yield await browser.new_page()
        await browser.close()
