"""Queries without aggregates: each reading that passes WHERE becomes a row at once.

All of a stream share one Spark query without state.

    records ─ decode ─ correct ─ observe ─ readings ─ one row a reading and query that it passes ─→
    foreachBatch (lane.py)

A row is final as soon as it is told: there is no window to wait for, so no reading is late. Its
identity is its reading's place in the stream (`reading`: partition, offset, number in the frame),
which is the same when a batch is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan import late
from edgewake.cloud.analysis.plan.clock_correction import correct
from edgewake.cloud.analysis.plan.columns import column
from edgewake.cloud.analysis.plan.combined_records import numbered
from edgewake.cloud.analysis.plan.decode import PLACE, decode, readings
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import result
from edgewake.protocol.field_type import FieldType


@dataclass(frozen=True, slots=True)
class RowsJob:
    """All queries of one stream that have no aggregates (see aggregate_job.Job)."""

    stream: str
    fields: tuple[tuple[str, FieldType], ...]
    queries: tuple[Registered, ...]
    kind: LaneKind = LaneKind.ROWS
    others: tuple[str, ...] = ()
    """See Query."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return self.stream, *self.others

    def graph(self, records: DataFrame, partitions: int = 1) -> DataFrame:
        """See Job; out: query (id), t, key and values (JSON objects)."""
        fields: Mapping[str, FieldType] = dict(self.fields)
        frames = late.observe(correct(decode(numbered(records, self.sources), fields)), partitions)
        each = readings(frames, fields, (), placed=True)
        rows = F.array(*[_row(registered) for registered in self.queries])
        return (
            each.select(F.explode(rows).alias("row"))
            .where(F.col("row").isNotNull())
            .select("row.*")
        )

    def outputs(
        self,
        rows: pa.Table,
        batch: emit.Batch,
        broken: emit.Broken,  # noqa: ARG002
    ) -> Iterator[emit.Output]:
        """See Job: results."""
        for registered in self.queries:
            mine = rows.filter(pc.equal(rows["query"], registered.id))
            yield from batch.meter.of(registered.label, _told(registered, mine, batch.revision))


def _told(registered: Registered, rows: pa.Table, revision: int) -> Iterator[emit.Output]:
    end = f',"revision":{revision},"final":true}}'
    for t, key, values in zip(
        *[rows[name].to_pylist() for name in ("t", "key", "values")], strict=True
    ):
        head = f'{{"query":"{registered.query.name}","window_start":{t},"window_end":{t + 1},'
        others = f",{values[1:-1]}" if len(values) > 2 else ""
        body = f"{head}{key[1:-1]}{others}{end}"
        yield emit.Output(registered.topic, result.result_key(t, t + 1, key), body.encode())


def _row(registered: Registered) -> Column:
    query = registered.query
    place = F.concat_ws(":", *PLACE)
    row = F.struct(
        F.lit(registered.id).cast("bigint").alias("query"),
        F.col("t"),
        _json([F.col("device"), place.alias("reading")]).alias("key"),
        _json(
            [column(output.expression, F.col).alias(output.name) for output in query.outputs]
        ).alias("values"),
    )
    return row if query.where is None else F.when(column(query.where, F.col), row)


def _json(columns: Sequence[Column]) -> Column:
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}) if columns else F.lit("{}")
