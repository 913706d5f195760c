"""Spark on a Kafka that speaks TLS only, as a user with a password and by a certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.security import SaslMechanism, SecurityConfig, SecurityProtocol, spark_options
from edgewake.protocol.field_type import FieldType
from tests.analysis.support import T0, Analysis, Feed, registered, results, sql, unique
from tests.secure_kafka import PASSWORD, SecureKafka, run_secure_kafka


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with run_secure_kafka(tmp_path_factory.mktemp("secure-kafka")) as service:
        yield service


@pytest.mark.parametrize(
    "config",
    [lambda kafka: kafka.with_password(SaslMechanism.SCRAM_SHA_512), lambda kafka: kafka.with_certificate()],
    ids=["password", "certificate"],
)
def test_a_query_reads_and_writes(
    spark: SparkSession, spark_jars: Path, secure: SecureKafka, config: Callable[[SecureKafka], KafkaConfig], tmp_path: Path
) -> None:
    kafka = config(secure)
    feed = Feed(kafka, unique("s"), {"speed": FieldType.NUMBER})
    analysis = Analysis(spark, AnalysisConfig(data_dir=tmp_path / "analysis", jars_dir=spark_jars, trigger_ms=0, kafka=kafka))
    name = unique("q")
    text = sql(feed.name, "device, sum(speed) AS total", "window(event_time, '1 minute'), device", name=name)
    (query,) = registered(text, streams=[feed.stream])
    feed.send([T0], speed=[7.0])
    analysis.run([query], feed)
    assert [row["total"] for row in results(kafka, name)] == [7.0]


def test_a_password_is_quoted_and_kept_out_of_what_spark_shows(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text('a "b" \\ c;\n')
    security = SecurityConfig(protocol=SecurityProtocol.SASL_SSL, mechanism=SaslMechanism.PLAIN, username="user", password_file=file)
    options = spark_options(security)
    assert options["kafka.sasl.jaas.config"].endswith(r'PlainLoginModule required username="user" password="a \"b\" \\ c;";')
    assert PASSWORD not in str(options)
