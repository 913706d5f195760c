"""Rows of a micro-batch as Arrow: the same as Spark's own way gives."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors.exceptions.captured import SparkRuntimeException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.lanes.batch_rows import ROWS_MAX, BatchRows


def columns() -> list[Column]:
    """Of every type that a lane has."""
    value = F.col("value")
    made = {
        "number": value,
        "double": F.when(value % 3 > 0, value / 7),
        "text": F.when(value % 5 > 0, F.format_string("näher %d", "value")),
        "list": F.array("value", F.lit(None).cast("bigint")),
        "struct": F.struct(value.alias("at"), F.array(value.cast("string")).alias("texts")),
        "bytes": value.cast("string").cast("binary"),
    }
    return [column.alias(name) for name, column in made.items()]


def batches(spark: SparkSession, folder: Path, rows: list[int]) -> list[tuple[pa.Table, pa.Table]]:
    """Of a stream's batches with so many rows, ours and Spark's."""
    found: list[tuple[pa.Table, pa.Table]] = []
    ours = BatchRows(spark)
    source = folder / "source"
    for i, count in enumerate(rows):
        spark.range(count).select(F.col("id").alias("value")).coalesce(1).write.parquet(
            str(source / f"{i}")
        )

        def take(batch: DataFrame, _: int) -> None:
            found.append((ours.collected(batch), batch.toArrow()))

        read = spark.readStream.schema("value bigint").parquet(str(source / "*")).select(*columns())
        running = (
            read.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        running.awaitTermination(120)
    return found


def test_rows_are_those_that_spark_gives(spark: SparkSession, tmp_path: Path) -> None:
    """Of several record batches, of one, of none."""
    found = batches(spark, tmp_path, [2 * ROWS_MAX + 5, 7])

    assert [ours.num_rows for ours, _ in found] == [2 * ROWS_MAX + 5, 7]
    for ours, sparks in found:
        assert ours.schema == sparks.schema
        assert ours.equals(sparks)


def test_a_batch_without_rows_has_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    ours = BatchRows(spark)
    empty: list[pa.Table] = []
    spark.range(3).select(F.col("id").alias("value")).write.parquet(str(tmp_path / "source" / "0"))
    read = (
        spark.readStream.schema("value bigint")
        .parquet(str(tmp_path / "source" / "*"))
        .where("value > 5")
    )

    read.writeStream.foreachBatch(lambda batch, _: empty.append(ours.collected(batch))).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    ).trigger(availableNow=True).start().awaitTermination(120)

    (table,) = empty
    assert (table.num_rows, table.column_names) == (0, ["value"])


def test_what_fails_in_a_task_is_said_as_spark_says_it(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).select(F.col("id").alias("value")).write.parquet(str(tmp_path / "source" / "0"))
    read = (
        spark.readStream.schema("value bigint")
        .parquet(str(tmp_path / "source" / "*"))
        .select(F.raise_error(F.lit("the fault")).alias("x"))
    )
    said: list[str] = []

    def take(batch: DataFrame, _: int) -> None:
        for run in (BatchRows(spark).collected, DataFrame.toArrow):
            with pytest.raises(SparkRuntimeException, match="the fault") as caught:
                run(batch)
            said.append(caught.value.getCondition())

    running = (
        read.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination(120)

    assert said == ["USER_RAISED_EXCEPTION"] * 2
