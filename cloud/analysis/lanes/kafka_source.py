"""Spark's source of streams in Kafka: committed records only, never past a loss.

It begins with the earliest.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from edgewake.cloud.analysis.config import AnalysisConfig
from edgewake.cloud.kafka.security import spark_options

FETCH_WAIT_MS: Final = 1
"""How long Kafka holds back a fetch that finds nothing, ms. Before each batch Spark asks for
offsets on the connection where its consumer's next fetch is already waiting, so every batch takes
this much longer per partition, and a task after each of its fetches; Kafka's default is 500 ms.
Spark's consumer fetches only for a batch, so a low value causes no more fetches."""
FETCH_TIMEOUT_MS: Final = 20_000
"""How long a task waits for Kafka before the lane is started again."""


def source(
    session: SparkSession, config: AnalysisConfig, *names: str, records_max: int
) -> DataFrame:
    """Read committed records of these topics, from the earliest on.

    It stops loudly when retention deleted what was not read yet.

    `records_max`: of a batch, until LanePlan.set_limit says another number.
    """
    return (
        session.readStream.format("kafka")
        .options(**spark_options(config.kafka.security))
        .option("kafka.bootstrap.servers", config.kafka.bootstrap)
        .option("subscribe", ",".join(names))
        .option("kafka.isolation.level", "read_committed")
        .option("kafka.fetch.max.wait.ms", str(FETCH_WAIT_MS))
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", str(records_max))
        .option("kafkaConsumer.pollTimeoutMs", str(FETCH_TIMEOUT_MS))
        .load()
    )
