"""A broker for each test, whose bridges share all its messages, and a Kafka for all files: these
tests kill them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.bridge.running import World, world
from tests.services import Kafka, Mosquitto, run_kafka, run_mosquitto


@pytest.fixture(scope="package")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with run_kafka(tmp_path_factory.mktemp("own-kafka")) as service:
        yield service


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with run_mosquitto(tmp_path / "own-mosquitto") as service:
        yield service


@pytest.fixture
async def here(own_broker: Mosquitto, own_kafka: Kafka, tmp_path: Path) -> AsyncIterator[World]:
    async with world(own_broker, own_kafka, tmp_path) as made:
        yield made
