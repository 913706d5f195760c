"""The real services that tests share. Topics have fixed names and the services live for the whole session: use names of your own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy import jars
from tests.feeds import Feed, QueryFeed
from tests.services import Kafka, Mosquitto, run_kafka, run_mosquitto

# No JVM of a test lives long enough to earn back what the second compiler costs: a file of Spark tests takes half the CPU without it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# A busy machine makes no example slow: what must be fast is measured by the benchmarks.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


SERVICE_FIXTURES = frozenset({"kafka", "mosquitto", "own_kafka", "own_broker", "broker", "page_kafka", "spark", "browser", "spark_jars"})
"""Whoever asks for one of these, through others or at once, starts a service."""
STARTERS = (
    ("tests.services", {"Process", "part", "run_kafka", "run_mosquitto"}),
    ("tests.story.system", None),
    ("tests.deploy.production", None),
)
"""Modules, and names in them, whose users start services by themselves."""


def _starts_services(item: pytest.Item) -> bool:
    if SERVICE_FIXTURES.intersection(getattr(item, "fixturenames", ())):
        return True
    used = [(getattr(value, "__module__", ""), name) for name, value in vars(item.module).items()]  # type: ignore[attr-defined]
    return any(module == origin and (names is None or name in names) for module, name in used for origin, names in STARTERS)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts services. The longest one first, so that no process works at it alone when the other is done."""
    for item in items:
        if _starts_services(item):
            item.add_marker("services")
    items.sort(key=lambda item: "story" not in item.path.parent.name)


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A Mosquitto: .host, .port."""
    with run_mosquitto(tmp_path_factory.mktemp("mosquitto")) as service:
        yield service


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A single-node Kafka: .bootstrap."""
    with run_kafka(tmp_path_factory.mktemp("kafka")) as service:
        yield service


@pytest.fixture
def kafka_config(kafka: Kafka) -> KafkaConfig:
    """How to reach it."""
    return KafkaConfig(bootstrap=kafka.bootstrap)


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """The folder of Spark's Kafka connector."""
    return jars.ensure("spark")


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
