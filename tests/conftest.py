"""The real services that tests share.

Topics have fixed names and the services live for the whole session: use names of your own.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from httpx._transports import default as httpx_transport

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy.programs import jars
from edgewake.protocol.ops.part_status import SUPERVISED
from tests import class_archives, examples
from tests.feeds import Feed, QueryFeed
from tests.second_chance import SecondChance
from tests.services import STAYS, Kafka, Mosquitto, run_kafka, run_mosquitto
from tests.sharing_out import BundleScheduling, rank

for _name, _value in class_archives.environment().items():
    os.environ.setdefault(_name, _value)

# Tests start and kill hundreds of parts on one Kafka: those would tell of themselves, and what was
# killed would be a problem for the operations servers of others.
os.environ.setdefault(SUPERVISED, "1")

examples.load_profile()

# Each client of httpx reads the certificates of all authorities anew, for http:// too: 36 ms of
# processor, and tests make thousands.
httpx_transport.create_ssl_context = cache(httpx_transport.create_ssl_context)


# Until all is collected: what is imported and collected stays, and the collector of garbage would
# look through it again and again.
gc.disable()

SERVICE_FIXTURES = frozenset(
    {
        "kafka",
        "mosquitto",
        "own_kafka",
        "own_broker",
        "broker",
        "page_kafka",
        "spark",
        "browser",
        "spark_jars",
    }
)
"""Whoever asks for one of these, through others or at once, starts a service."""
STARTERS = (
    ("tests.services", {"Process", "part", "run_kafka", "run_mosquitto"}),
    ("tests.story.system", None),
    ("tests.deploy.production", None),
    ("tests.deploy.test_up", {"running"}),
    ("tests.edge.mtls", {"broker_with_mtls"}),
)
"""Modules, and names in them, whose users start services by themselves."""
PYSPARK_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""To them PySpark tells what was wrong with a query."""


def _starts_services(item: pytest.Item) -> bool:
    return not SERVICE_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())) or _uses_starters(
        item.module
    )  # type: ignore[attr-defined]


@cache
def _uses_starters(module: ModuleType) -> bool:
    used = [(getattr(value, "__module__", ""), name) for name, value in vars(module).items()]
    return any(
        module == origin and (names is None or name in names)
        for module, name in used
        for origin, names in STARTERS
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register what speaks at the end of a run."""
    config.pluginmanager.register(SecondChance())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts services, and put the files into the order in which they are shared out."""
    with_services = set()
    for item in items:
        if _starts_services(item):
            item.add_marker("services")
            with_services.add(_file(item))
    items.sort(key=lambda item: rank(_file(item), with_services))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the collector of garbage need not look
    through its million objects again.
    """
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Begin each test with pytest's own format of logs.

    A logger of PySpark makes every handler that it is given write JSON, and pytest gives its own to
    all that do not propagate, which PySpark's are from the first wrong query on: later tests of the
    process that look at `caplog.text` found JSON.
    """
    for name in PYSPARK_LOGGERS:
        if isinstance(logger := logging.root.manager.loggerDict.get(name), logging.Logger):
            logger.propagate = True
    plugin = item.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter(plugin.formatter)
    return (yield)


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BundleScheduling | None:
    """Ours for `--dist loadfile`."""
    return BundleScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """A Mosquitto: .host, .port."""
    with run_mosquitto(tmp_path_factory.mktemp("mosquitto")) as service:
        yield service


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A single-node Kafka: .bootstrap. No test kills it."""
    with run_kafka(tmp_path_factory.mktemp("kafka"), *STAYS) as service:
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


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Write half surrogates of what a test printed as `\\udce9`: pytest's processes speak UTF-8,
    and one ended them all.
    """
    return _in_utf8((yield))


def _in_utf8(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(one) for key, one in value.items()}
    return type(value)(_in_utf8(one) for one in value) if isinstance(value, list | tuple) else value
