"""The graph on one screen: from records of a stream to changed partials of all its queries.

records ─ decode ─ correct ─ observe ─ watermark ─ readings ─ tagged ─ aggregate ─ estimate ─→ emit
          frames   clocks    late,     event time  one row    one row  Table.java  values
                             counts    of frames   a reading  a tag    state       of sketches

`emit` is called by lanes/micro_batch.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.jobs.job import NO_DIALS, Dials, Job, Stateless, States
from edgewake.cloud.analysis.plan import frame_sums, late, partials, shed_columns, tags
from edgewake.cloud.analysis.plan.clock_correction import correct
from edgewake.cloud.analysis.plan.combined_records import numbered
from edgewake.cloud.analysis.plan.decode import decode, readings
from edgewake.cloud.analysis.results import emit, finish, shed_report
from edgewake.protocol.frames.field_type import FieldType

_FORGOTTEN: Final = "$forgotten"
"""Column of a frame: the event time up to which Spark forgets windows."""
MODE_TIES_MAX: Final = 20
"""Items that a sketch is asked for where mode(x) is computed: of up to 19 equally frequent ones the
smallest is found, in whatever order the sketch lists them."""


class AggregateJob(Job):
    """All queries with aggregates of the same streams and kind, whose windows Spark keeps."""

    has_spark_state = True

    @property
    def ranks(self) -> tuple[float, ...]:
        """Ranks of all quantiles, ascending."""
        aggregates = [a for registered in self.queries for a in registered.query.aggregates]
        return tuple(
            sorted(
                {
                    rank
                    for a in aggregates
                    if a.function in ("quantile", "quantiles")
                    for rank in a.parameters
                }
            )
        )

    @property
    def top_k(self) -> int:
        """The most items that approx_top_k or mode needs of a sketch."""
        aggregates = [a for r in self.queries for a in r.query.aggregates]
        asked = [int(a.parameters[0]) for a in aggregates if a.function == "top_k"]
        if any(a.function == "mode" for a in aggregates):
            asked.append(MODE_TIES_MAX)
        return max(asked, default=1)

    def graph(
        self,
        records: DataFrame,
        partitions: int = 1,
        dials: Dials = NO_DIALS,
    ) -> DataFrame:
        """See Job; out: partials.estimate."""
        return self.graph_of(
            decode(numbered(records, self.sources), dict(self.fields)),
            partitions,
            dials,
        )

    def graph_of(
        self,
        frames: DataFrame,
        partitions: int,
        dials: Dials = NO_DIALS,
    ) -> DataFrame:
        """The graph from frames on (decode.decode)."""
        levels, forgotten = dials.levels, dials.forgotten
        fields: Mapping[str, FieldType] = dict(self.fields)
        inputs, sheds = self.kind.inputs, self.kind.sheds
        all_tags = [tag for registered in self.queries for tag in tags.tags_of(registered)]
        keys = tags.key_columns(all_tags)

        frames = late.observe(correct(frames), partitions)
        frames = with_event_time(frames)
        frames, kept = _frame_keys(frames, keys)
        if forgotten is not None:
            frames, kept = (
                frames.withColumn(_FORGOTTEN, forgotten.first(F.col("partition"))),
                [*kept, _FORGOTTEN],
            )
        frames, level_names = shed_columns.with_levels(frames, levels)
        sums = None if sheds else tags.sums_for(all_tags)
        if sums is not None:
            frames = frame_sums.summed_up(frames, sums)
            each = readings(
                frames,
                fields,
                (*kept, *sums.columns),
                numbered=True,
                is_one_enough=sums.is_one_enough,
            )
        elif levels:
            each = shed_columns.drawn(readings(frames, fields, (*kept, *level_names), placed=True))
        else:
            each = readings(frames, fields, kept)
        takings = shed_columns.takings(self.queries, levels) if sheds else None
        tagged = tags.tagged(
            each,
            all_tags,
            keys,
            inputs=inputs,
            takings=takings,
            forgotten=None if forgotten is None else _FORGOTTEN,
            sums=sums,
        )
        merged = partials.aggregate(tagged, inputs=inputs, weights=sheds, summed=sums is not None)
        return partials.estimate(merged, ranks=self.ranks, k=self.top_k)

    def new_states(self) -> States:
        return Stateless(self.outputs)

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output | emit.Outputs]:
        """See States: results, what was left out of them, then watermarks."""
        for registered in self.queries:
            yield from batch.meter.of(
                registered.label, finish.results(rows, [registered], self.ranks, batch, broken)
            )
        if self.kind.sheds:
            yield from shed_report.outputs(rows, self.queries, batch)
        yield from emit.watermarks(
            [registered for registered in self.queries if registered.label not in broken], batch
        )


def with_event_time(frames: DataFrame) -> DataFrame:
    """Give the frames a watermark that does not advance by itself.

    The driver knows how far event time has come (event_progress), and tells Spark after each batch.
    """
    timed = frames.withColumn("event_time", F.timestamp_millis(F.lit(0))).withWatermark(
        "event_time", "0 seconds"
    )
    # With one partition on both sides Spark leaves the shuffle out: one stage and one task instead
    # of two and three. Only if it is told here, for behind a watermark it does not know how many
    # partitions there were before.
    return (
        timed.coalesce(1)
        if frames.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"
        else timed
    )


def _frame_keys(frames: DataFrame, keys: Mapping[tags.Keys, str]) -> tuple[DataFrame, list[str]]:
    made = {name: tags.key_json(key, F.col) for key, name in keys.items() if tags.of_the_frame(key)}
    return frames.withColumns(made) if made else frames, list(made)
