"""A broker for each test and a Kafka for all files: these tests kill them.

A sequencer that starts finds what the tests before left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.bridge.running import World, world
from tests.services import Kafka, Mosquitto, run_kafka, run_mosquitto

NO_TRANSACTION_TIMES_OUT = (
    f"transaction.abort.timed.out.transaction.cleanup.interval.ms={3_600_000}"
)
"""Kafka looks for transactions that timed out once an hour: what a dead sequencer left open is
ended by its successor or by nobody."""


@pytest.fixture(scope="package")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with run_kafka(tmp_path_factory.mktemp("own-kafka"), NO_TRANSACTION_TIMES_OUT) as service:
        yield service


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with run_mosquitto(tmp_path / "own-mosquitto") as service:
        yield service


@pytest.fixture
async def here(own_broker: Mosquitto, own_kafka: Kafka, tmp_path: Path) -> AsyncIterator[World]:
    async with world(own_broker, own_kafka, tmp_path) as made:
        yield made
