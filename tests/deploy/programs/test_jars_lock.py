"""The lock of the jars."""

from __future__ import annotations

from edgewake.deploy.programs import jars
from tests.deploy.programs.test_jars import SPARK


def test_the_lock_names_what_the_classpaths_need() -> None:
    assert {jar.artifact for jar in SPARK} == {
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "ecj",
        "kafka-clients",
        "scala-parallel-collections_2.13",
        "commons-pool2",
    }
    assert {"kafka_2.13", "kafka-clients", "scala-library", "log4j-slf4j-impl"} <= {
        jar.artifact for jar in jars.read_lock()["kafka"]
    }
