"""Rows of single readings, for kinds that Spark does not aggregate.

Each reading becomes a row of every query whose WHERE it passes, with its place in the log.

    records ─ decode ─ correct ─ observe ─ readings ─ one row a reading and query that it passes ─→
    foreachBatch (lanes/micro_batch.py)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.folds.placed import PLACE
from edgewake.cloud.analysis.jobs.job import Job
from edgewake.cloud.analysis.plan import decode as decoded
from edgewake.cloud.analysis.plan import late
from edgewake.cloud.analysis.plan.clock_correction import correct
from edgewake.cloud.analysis.plan.columns import column
from edgewake.cloud.analysis.plan.combined_records import numbered
from edgewake.cloud.analysis.plan.decode import decode, readings
from edgewake.cloud.queries.query import Query, Registered


def exploded(job: Job, records: DataFrame, partitions: int, rows: Iterable[Column]) -> DataFrame:
    """The graph of such a job (Job.graph).

    `rows`: one struct for each row that a reading may become; null where it does not become that
    row.
    """
    fields = dict(job.fields)
    frames = late.observe(correct(decode(numbered(records, job.sources), fields)), partitions)
    each = readings(frames, fields, (), placed=True)
    return (
        each.select(F.explode(F.array(*rows)).alias("row"))
        .where(F.col("row").isNotNull())
        .select("row.*")
    )


def result_columns(registered: Registered) -> list[Column]:
    """What a reading's row is made of: query (id), t, key and values (JSON objects)."""
    place = F.concat_ws(":", *decoded.PLACE)
    values = [
        column(output.expression, F.col).alias(output.name) for output in registered.query.outputs
    ]
    return [
        F.lit(registered.id).cast("bigint").alias("query"),
        F.col("t"),
        json_of([F.col("device"), place.alias("reading")]).alias("key"),
        json_of(values).alias("values"),
    ]


def passing(query: Query, row: Column) -> Column:
    """The row of a reading; null where the reading does not pass WHERE."""
    return row if query.where is None else F.when(column(query.where, F.col), row)


def json_of(columns: Sequence[Column]) -> Column:
    """A JSON object of these columns, nulls included."""
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}) if columns else F.lit("{}")


def place_columns() -> list[Column]:
    """PLACE, of readings that are `placed`."""
    return [F.col(name).alias(alias) for name, alias in zip(decoded.PLACE, PLACE, strict=True)]


def new_in_order(rows: pa.Table, emitted: Mapping[int, int]) -> pa.Table:
    """Return rows in the order of the log, without those whose results were emitted before.

    When Spark cuts a batch differently after a restart, the batch may repeat them.
    """
    places = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    is_new = [offset >= emitted.get(partition, 0) for partition, offset in places]
    return rows.filter(pa.array(is_new, pa.bool_())).sort_by(
        [(name, "ascending") for name in PLACE if name in rows.column_names]
    )
