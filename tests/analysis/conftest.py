"""One Spark session for all tests of the analysis; each test has streams, queries and checkpoints
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.analysis.spark.session import start_session
from edgewake.cloud.analysis.spark.settings import StateStore
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.support import STATE_MIB, Analysis, Feed, stored, unique
from tests.class_archives import JAVA_CLASSES

ASSERTIONS = "-ea:edgewake..."
"""Every unchecked access of our Java classes to memory is checked (Raw.java)."""


@pytest.fixture(scope="package")
def spark(spark_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session, as the analysis starts it."""
    work_dir = tmp_path_factory.mktemp("spark")
    session = start_session(
        jars_dir=spark_jars,
        classes_dir=JAVA_CLASSES,
        work_dir=work_dir,
        master="local[2]",
        driver_memory="1g",
        state_partitions=1,
        state_memory=f"{STATE_MIB}m",
        state_store="memory",
        maintenance_s=2,
        jvm_options=[ASSERTIONS],
    )
    yield session
    session.stop()


@pytest.fixture
def state_store() -> StateStore:
    """What keeps the state. Tests for which both are to be compared have it as their parameter."""
    return "memory"


@pytest.fixture
def _stored(spark: SparkSession, state_store: StateStore) -> Iterator[None]:
    """Queries that start now keep their state there."""
    with stored(spark, state_store):
        yield


@pytest.fixture
def analysis(
    spark: SparkSession,
    spark_jars: Path,
    kafka_config: KafkaConfig,
    tmp_path: Path,
    state_store: StateStore,
    _stored: None,
) -> Analysis:
    """Where lanes run.

    One that looked for new readings all the time would take a part of a core from those that have
    some.
    """
    config = AnalysisConfig(
        data_dir=tmp_path / "analysis", jars_dir=spark_jars, state_store=state_store,
        trigger_ms=100, calm_trigger_ms=0, kafka=kafka_config,
        event_time_wait_s=0,  # the readings of tests are long past
        slow_s=3600.0,  # on a busy machine lanes are behind for long: a search would make it busier
    )  # fmt: skip
    return Analysis(spark, config)


@pytest.fixture
def new_feed(kafka_config: KafkaConfig) -> Callable[[Mapping[str, FieldType]], Feed]:
    """Makes a stream with these fields."""
    return lambda types: Feed(kafka_config, unique("s"), types)


@pytest.fixture
def feed(new_feed: Callable[[Mapping[str, FieldType]], Feed]) -> Feed:
    """A stream with a number, a text and a boolean."""
    return new_feed(
        {
            "speed": FieldType.NUMBER,
            "load": FieldType.NUMBER,
            "street": FieldType.STRING,
            "on": FieldType.BOOLEAN,
        }
    )
