"""Two access servers on the session's Kafka, with one cursor key: every test may kill neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Server, key_file, server
from tests.services import Kafka


@pytest.fixture(scope="session")
def access_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="session")
def cursor_key(access_directory: Path) -> Path:
    return key_file(access_directory)


@pytest.fixture(scope="session")
def access_a(kafka: Kafka, access_directory: Path, cursor_key: Path) -> Iterator[Server]:
    with server(access_directory, KafkaConfig(bootstrap=kafka.bootstrap), cursor_key, heartbeat_s=1) as running:
        yield running


@pytest.fixture(scope="session")
def access_b(kafka: Kafka, access_directory: Path, cursor_key: Path) -> Iterator[Server]:
    with server(access_directory, KafkaConfig(bootstrap=kafka.bootstrap), cursor_key, heartbeat_s=1) as running:
        yield running
