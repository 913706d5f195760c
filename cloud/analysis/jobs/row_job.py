"""Queries without aggregates: each reading that passes WHERE becomes a row at once.

All such queries of a stream share one Spark query without state.

records ─ decode ─ correct ─ observe ─ readings ─ one row a reading and query that it passes ─→
foreachBatch (lanes/micro_batch.py)

A row is final as soon as it is emitted: no window is waited for, so no reading is late. Its
identity is its reading's place in the stream (`reading`: partition, offset, number in the frame),
which is the same when a batch is computed again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.jobs.job import NO_DIALS, Dials, Job, Stateless, States
from edgewake.cloud.analysis.jobs.placed_rows import exploded, passing, result_columns
from edgewake.cloud.analysis.jobs.row_results import result_rows, rows_of
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.queries.query import Query


class RowJob(Job):
    """All queries of the same streams that have no aggregates."""

    def graph(self, records: DataFrame, partitions: int = 1, dials: Dials = NO_DIALS) -> DataFrame:
        """See Job; out: query (id), t, key and values (JSON objects)."""
        return exploded(
            self,
            records,
            partitions,
            (passing(one.query, F.struct(*result_columns(one))) for one in self.queries),
        )

    @classmethod
    def why_not(cls, query: Query, *, is_rebuild: bool) -> str | None:  # noqa: ARG003  (its kind says it)
        return (
            "a query without aggregates emits each reading at once, whatever its time; read its "
            "stream from an earlier time instead"
        )

    def new_states(self) -> States:
        return Stateless(self._outputs)

    def _outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        for registered in self.queries:
            mine = rows.filter(pc.equal(rows["query"], registered.id))
            yield from batch.meter.of(
                registered.label, rows_of(registered, result_rows(mine), batch.revision)
            )
