"""The graph on one screen: from records of a stream to changed partials of all its queries.

records ─ decode ─ correct ─ observe ─ watermark ─ readings ─ tagged ─ aggregate ─ estimate ─→ emit
          frames   clocks    late,     event time  one row    one row  Table.java  values
                             counts    of frames   a reading  a tag    state       of sketches

`emit` is `foreachBatch` of lanes/lane.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.jobs.row_job import RowsJob
from edgewake.cloud.analysis.jobs.sequence_job import SequenceJob
from edgewake.cloud.analysis.jobs.stream_join_job import PairJob, place_of
from edgewake.cloud.analysis.jobs.table_job import TableJob
from edgewake.cloud.analysis.jobs.table_join_job import JoinJob
from edgewake.cloud.analysis.plan import frame_sums, late, partials, shed_columns, tags
from edgewake.cloud.analysis.plan.clock_correction import correct
from edgewake.cloud.analysis.plan.combined_records import numbered
from edgewake.cloud.analysis.plan.decode import decode, readings
from edgewake.cloud.analysis.results import emit, finish, shed_report
from edgewake.cloud.analysis.spark.plan_values import PlanValues
from edgewake.cloud.queries.explain import kind_of, streams_of
from edgewake.cloud.queries.lane_kind import APART, LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.protocol.field_type import FieldType

_CHANGED: Final = {
    LaneKind.PLAIN: 3,
    LaneKind.PLAIN_SHED: 2,
    LaneKind.SKETCH: 5,
    LaneKind.SKETCH_SHED: 3,
    LaneKind.DISTINCT: 5,
    LaneKind.PAIR: 2,
    LaneKind.TABLE: 2,
}
STATE_FORMAT: Final = dict.fromkeys(LaneKind, 1) | _CHANGED
"""Which columns the state of a lane has; it grows where they change, and a state of another format
is built again."""


class Job(Protocol):
    """What a lane runs. An equal job needs no restart."""

    @property
    def stream(self) -> str: ...
    @property
    def kind(self) -> LaneKind: ...
    @property
    def fields(self) -> tuple[tuple[str, FieldType], ...]: ...
    @property
    def queries(self) -> tuple[Registered, ...]: ...
    def graph(self, records: DataFrame, partitions: int = 1) -> DataFrame:
        """In: a Kafka source's records of a topic with so many partitions.

        Out: a streaming frame, to be run in update mode.
        """

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output | emit.Outputs]:
        """The records that a micro-batch's changed rows become; queries whose records cannot be
        made are put into `broken`.
        """


_FORGOTTEN: Final = "$forgotten"
"""Of a frame: the event time up to which Spark forgets windows."""
_NO_LEVELS: Final[Mapping[str, Column]] = {}


@dataclass(frozen=True, slots=True)
class QueryJob:
    """All queries of one stream and kind."""

    stream: str
    kind: LaneKind
    fields: tuple[tuple[str, FieldType], ...]
    """Only those that its queries read, sorted."""
    queries: tuple[Registered, ...]
    others: tuple[str, ...] = ()
    """See Query."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return self.stream, *self.others

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
        """Largest k of all approx_top_k."""
        return max(
            (
                int(a.parameters[0])
                for r in self.queries
                for a in r.query.aggregates
                if a.function == "top_k"
            ),
            default=1,
        )

    def graph(
        self,
        records: DataFrame,
        partitions: int = 1,
        levels: Mapping[str, Column] = _NO_LEVELS,
        forgotten: PlanValues | None = None,
    ) -> DataFrame:
        """See Job; out: partials.estimate.

        `levels`: query (label) → how many readings it takes (Dial); without, all. `forgotten`:
        tags.
        """
        return self.graph_of(
            decode(numbered(records, self.sources), dict(self.fields)),
            partitions,
            levels,
            forgotten,
        )

    def graph_of(
        self,
        frames: DataFrame,
        partitions: int,
        levels: Mapping[str, Column] = _NO_LEVELS,
        forgotten: PlanValues | None = None,
    ) -> DataFrame:
        """The same from frames on (decode.decode)."""
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

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output | emit.Outputs]:
        """See Job: results, what was left out of them, then watermarks."""
        for registered in self.queries:
            yield from batch.meter.of(
                registered.label, finish.results(rows, [registered], self.ranks, batch, broken)
            )
        if self.kind.sheds:
            yield from shed_report.outputs(rows, self.queries, batch)
        yield from emit.watermarks(
            [registered for registered in self.queries if registered.label not in broken], batch
        )


QueriesJob: TypeAlias = QueryJob | RowsJob | SequenceJob | JoinJob | PairJob | TableJob


def sources_of(job: Job) -> tuple[str, ...]:
    """The streams that a lane reads, its own first."""
    return (
        job.sources
        if isinstance(job, PairJob | QueryJob | RowsJob | SequenceJob | TableJob)
        else (job.stream,)
    )


def with_event_time(frames: DataFrame) -> DataFrame:
    """A watermark that stands still: how far event time has come the driver knows (event_progress),
    and tells Spark after each batch.
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


def lane_place(registered: Registered) -> str:
    """What the lane of this query is called beside its kind: by the streams that it reads, and
    where it is apart by the query, too.
    """
    streams = place_of(streams_of(registered.query))
    return f"{streams}{APART}{registered.label}" if registered.is_apart else streams


def jobs_of(
    registered: Sequence[Registered], fields: Mapping[str, Mapping[str, FieldType]]
) -> Mapping[tuple[str, LaneKind], QueriesJob]:
    """The lanes that a set of queries needs, by place and kind.

    `fields`: stream → field → type, from the catalogue.
    """
    sorted_queries = sorted(registered, key=lambda r: (r.registered_at, r.query.name))
    lanes: dict[tuple[str, LaneKind], list[Registered]] = {}
    for each in sorted_queries:
        lanes.setdefault((lane_place(each), kind_of(each.query)), []).append(each)
    return {(place, kind): _job(kind, queries, fields) for (place, kind), queries in lanes.items()}


def _job(
    kind: LaneKind, queries: Sequence[Registered], types: Mapping[str, Mapping[str, FieldType]]
) -> QueriesJob:
    query = queries[0].query
    stream = query.stream
    used = sorted({name for each in queries for name in each.query.fields})
    known = {name: kind for one in (*query.others, stream) for name, kind in types[one].items()}
    fields = tuple((name, known[name]) for name in used)
    if kind is LaneKind.ROWS:
        return RowsJob(stream, fields, tuple(queries), others=query.others)
    if kind is LaneKind.PAIR:
        assert query.join is not None
        return PairJob(stream, query.join.table, fields, tuple(queries))
    if kind is LaneKind.TABLE:
        return TableJob(streams_of(query), fields, tuple(queries))
    if kind is LaneKind.JOIN:
        return JoinJob(stream, fields, tuple(queries))
    if kind is LaneKind.SEQUENCE:
        return SequenceJob(stream, fields, tuple(queries), others=query.others)
    return QueryJob(stream, kind, fields, tuple(queries), query.others)
