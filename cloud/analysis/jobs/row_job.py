"""Queries without aggregates: each reading that passes WHERE becomes a row at once.

All such queries of a stream share one Spark query without state.

records ─ decode ─ correct ─ observe ─ readings ─ one row a reading and query that it passes ─→
foreachBatch (lanes/micro_batch.py)

A row is final as soon as it is emitted: no window is waited for, so no reading is late. Its
identity is its reading's place in the stream (`reading`: partition, offset, number in the frame),
which is the same when a batch is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.jobs.job import NO_DIALS, Dials, Job, Stateless, States
from edgewake.cloud.analysis.jobs.placed_rows import exploded
from edgewake.cloud.analysis.plan.columns import column
from edgewake.cloud.analysis.plan.decode import PLACE
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.queries.query import Registered
from edgewake.protocol.ops import result


class RowsJob(Job):
    """All queries of the same streams that have no aggregates."""

    def graph(self, records: DataFrame, partitions: int = 1, dials: Dials = NO_DIALS) -> DataFrame:
        """See Job; out: query (id), t, key and values (JSON objects)."""
        return exploded(self, records, partitions, map(_row, self.queries))

    def new_states(self) -> States:
        return Stateless(self._outputs)

    def _outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        for registered in self.queries:
            mine = rows.filter(pc.equal(rows["query"], registered.id))
            yield from batch.meter.of(
                registered.label, _emitted_rows(registered, mine, batch.revision)
            )


def _emitted_rows(registered: Registered, rows: pa.Table, revision: int) -> Iterator[emit.Output]:
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
