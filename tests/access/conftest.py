"""Two access servers on the session's Kafka, with one cursor key: every test may kill neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from tests.access.world import Feed, QueryFeed, Server, key_file, server
from tests.services import Kafka


@pytest.fixture(scope="session")
def access_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("access")


@pytest.fixture(scope="session")
def cursor_key(access_directory: Path) -> Path:
    return key_file(access_directory)


@pytest.fixture(scope="session")
def access_a(kafka: Kafka, access_directory: Path, cursor_key: Path) -> Iterator[Server]:
    with server(access_directory, KafkaConfig(bootstrap=kafka.bootstrap), cursor_key) as running:
        yield running


@pytest.fixture(scope="session")
def access_b(kafka: Kafka, access_directory: Path, cursor_key: Path) -> Iterator[Server]:
    with server(access_directory, KafkaConfig(bootstrap=kafka.bootstrap), cursor_key) as running:
        yield running


@pytest.fixture
def new_feed(kafka_config: KafkaConfig) -> Iterator[Callable[..., Feed]]:
    """Makes streams: `new_feed(partitions=1)`."""
    feeds: list[Feed] = []

    def make(**more: Any) -> Feed:
        feeds.append(Feed(kafka_config, **more))
        return feeds[-1]

    yield make
    for feed in feeds:
        feed.close()


@pytest.fixture
def feed(new_feed: Callable[..., Feed]) -> Feed:
    """A stream of two partitions."""
    return new_feed()


@pytest.fixture
def query_feed(kafka_config: KafkaConfig) -> Iterator[QueryFeed]:
    """A query's results."""
    feed = QueryFeed(kafka_config)
    yield feed
    feed.close()
