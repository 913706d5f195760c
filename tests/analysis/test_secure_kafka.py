"""Spark on a Kafka that speaks TLS only, as a user with a password and by a certificate; on one
machine and on a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.security import (
    SaslMechanism,
    SecurityConfig,
    SecurityProtocol,
    spark_options,
)
from edgewake.protocol.frames.field_type import FieldType
from tests.analysis.support import (
    T0,
    Analysis,
    Feed,
    declare,
    register,
    registered,
    results,
    sql,
    totals,
    unique,
    windows,
)
from tests.secure_kafka import PASSWORD, SecureKafka, run_secure_kafka, toml
from tests.services import part, wait_until
from tests.spark_cluster import executor_options, run_cluster


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with run_secure_kafka(tmp_path_factory.mktemp("secure-kafka")) as service:
        yield service


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(lambda kafka: kafka.with_password(SaslMechanism.SCRAM_SHA_512), id="password"),
        pytest.param(
            lambda kafka: kafka.with_certificate(), id="certificate", marks=pytest.mark.long
        ),
    ],
)
def test_a_query_reads_and_writes(
    spark: SparkSession,
    spark_jars: Path,
    secure: SecureKafka,
    config: Callable[[SecureKafka], KafkaConfig],
    tmp_path: Path,
) -> None:
    kafka = config(secure)
    feed = Feed(kafka, unique("s"), {"speed": FieldType.NUMBER})
    analysis = Analysis(
        spark,
        AnalysisConfig(
            data_dir=tmp_path / "analysis",
            jars_dir=spark_jars,
            trigger_ms=100,
            calm_trigger_ms=0,
            kafka=kafka,
        ),
    )
    name = unique("q")
    text = sql(
        feed.name,
        "device, sum(speed) AS total",
        "window(event_time, '1 minute'), device",
        name=name,
    )
    (query,) = registered(text, streams=[feed.stream])
    feed.send([T0], speed=[7.0])
    analysis.run([query], feed)
    # What was committed a moment ago Kafka gives out a moment later.
    wait_until(lambda: [row["total"] for row in results(kafka, name)] == [7.0], "the result")


@pytest.mark.skipif(
    not os.environ.get("EDGEWAKE_CLUSTER"),
    reason="eight virtual machines take a minute of processor: `make cluster`",
)
def test_a_cluster_gives_what_a_batch_gives_though_a_worker_and_the_driver_are_killed(
    secure: SecureKafka, spark_jars: Path, tmp_path: Path
) -> None:
    """Executors read with a password, keep their state in a folder given by its URL, and have no
    Python.
    """
    kafka = secure.with_password(SaslMechanism.SCRAM_SHA_512)
    feed = Feed(kafka, unique("s"), {"speed": FieldType.NUMBER, "street": FieldType.STRING})
    name, streets = unique("total"), unique("streets")
    minute = "window(event_time, '1 minute'), device"
    declare(feed)
    register(feed, sql(feed.name, "device, sum(speed) AS total", minute, name=name), name=name)
    register(
        feed,
        sql(feed.name, "device, approx_count_distinct(street) AS total", minute, name=streets),
        name=streets,
    )
    config = tmp_path / "analysis.toml"
    with run_cluster(tmp_path / "cluster") as cluster:
        config.write_text(
            f'data_dir = "{tmp_path}/own"\nshared_dir = "file://{tmp_path}/shared"\njars_dir = '
            f'"{spark_jars}"\n'
            f'master = "{cluster.master}"\nstate_partitions = 2\ntrigger_ms = '
            "100\nsummary_interval_s = 0\n"
            f'driver_memory = "512m"\n{toml(kafka)}[spark]\n"spark.driver.host" = '
            '"127.0.0.1"\n"spark.executor.memory" = "512m"\n'
            f'"spark.executor.extraJavaOptions" = "{executor_options()}"\n'
        )

        def send(first: int) -> None:
            for i in range(first, first + 40):
                feed.send(
                    [T0 + i * 1000],
                    device=f"d{i % 7}",
                    speed=[float(i)],
                    street=[f"street {i % 3}"],
                )
            feed.flush()

        def is_right() -> bool:
            assert process.is_running(), process.output()[-2000:]
            by_minute = [
                windows(feed.sent, 60_000, 60_000, lambda row: (row["device"],), field)
                for field in ("speed", "street")
            ]
            sums = {place: sum(values) for place, values in by_minute[0].items()}
            distinct = {place: len(set(values)) for place, values in by_minute[1].items()}
            return totals(feed, name) == sums and totals(feed, streets) == distinct

        process = part("analysis", config, tmp_path / "analysis.log")
        with process:
            send(0)
            wait_until(is_right, "the cluster computes")
            assert cluster.executors(0)
            assert cluster.executors(1)
            cluster.workers[0].kill()
            send(40)
            wait_until(is_right, "the other worker goes on with the state of the killed one")
            process.kill()
        cluster.workers[0].start()
        send(80)
        with process:
            wait_until(is_right, "a new driver goes on where the killed one was")
            send(120)
            wait_until(is_right, "and computes what comes")
            cluster.remove_applications()
            wait_until(
                lambda: not process.is_running(),
                "a driver whose cluster sent it away ends, and its supervisor starts another",
            )
            assert process.stop() == 1
            assert "Spark has ended" in process.output()
    for query in (name, streets):
        rows = [
            (row["window_start"], row["device"], row["revision"]) for row in results(kafka, query)
        ]
        assert len(rows) == len(set(rows))
    assert not list((tmp_path / "own").rglob("*.changelog")), "the driver keeps no state of its own"


def test_a_password_is_quoted_and_kept_out_of_what_spark_shows(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text('a "b" \\ c;\n')
    security = SecurityConfig(
        protocol=SecurityProtocol.SASL_SSL,
        mechanism=SaslMechanism.PLAIN,
        username="user",
        password_file=file,
    )
    options = spark_options(security)
    assert options["kafka.sasl.jaas.config"].endswith(
        r'PlainLoginModule required username="user" password="a \"b\" \\ c;";'
    )
    assert PASSWORD not in str(options)
