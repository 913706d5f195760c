"""The port that every kind of query implements: what a lane runs, and who calls what when.

A kind is a file beside this one, with a `Job` and perhaps `States` of its own, and a line in
`kinds.py`. Nobody else tells kinds apart: lanes, repairs, previews and searches ask a job.

    once, when a lane is planned   Job.graph      records of the sources → changed rows, in Spark
    once, when it starts           Job.restored   what its driver knew after the last commit
                                   States.follower            its tables, where it reads any
    in each micro-batch            States.catch_up            what is new of these tables
                                   Job.late                   readings that came too late
                                   States.outputs             rows → records of the transaction
    while nothing comes            States.is_due              would anything be emitted now?
                                   States.in_silence          then its records
    with each progress record      States.remarks             what is wrong with a table
    to compute closed windows      Job.graph, Job.new_states, States.outputs, States.whole
    once more, and in previews     (repair/refold.py, repair/preview.py)
    before that, of a query alone  Job.why_not, Job.needs_all, Job.first_open, Job.tables_of

A `Job` is a value: a lane whose job equals the wanted one is left running. `States` belong to the
one thread that computes the lane's batches; whatever `outputs` and `in_silence` changed in them
must be written, so that the next start finds it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from edgewake.cloud.analysis.folds.table_follower import TableFollower
from edgewake.cloud.analysis.plan import late
from edgewake.cloud.analysis.plan.combined_topics import CombinedTopics
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.analysis.spark.plan_values import PlanValues
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.explain import streams_of
from edgewake.cloud.queries.lane_kind import APART, LaneKind
from edgewake.cloud.queries.query import Query, Registered
from edgewake.cloud.queries.terms.windows import Window
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType

Records: TypeAlias = Iterator[emit.Output | emit.Outputs]


@dataclass(frozen=True, slots=True)
class Dials:
    """Numbers in a plan that its lane changes between two batches."""

    levels: Mapping[str, Column]
    """Query (label) → how many readings it takes (shed_columns.Dial); of others all."""
    forgotten: PlanValues | None = None
    """The event time, ms, up to which Spark forgets windows."""


NO_DIALS: Final = Dials({})
"""Dials of a plan that runs once."""


class TooManyRows(ValueError):
    """A table has more rows than `States.keep_versions` allowed."""


class States(ABC):
    """What a job's queries have open in the driver, and what becomes of a batch's rows with it."""

    @abstractmethod
    def outputs(self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken) -> Records:
        """The records that a micro-batch's changed rows become: results, states, then watermarks.

        Queries whose records cannot be made are put into `broken`, with the reason.
        """

    def is_due(self, top: int | None) -> bool:
        """Would `in_silence` emit anything with event time at `top` (ms)?"""
        return False

    def in_silence(
        self,
        batch: emit.Batch,
        broken: emit.Broken,
    ) -> Iterable[emit.Output]:
        """The records that are due although no reading came."""
        return ()

    def follower(self, kafka: KafkaConfig) -> TableFollower | None:
        """A reader of the tables that complete rows, starting where they were read to.

        None: the kind has no tables.
        """
        return None

    def catch_up(
        self,
        follower: TableFollower,
        closed: Mapping[str, int | None],
        meter: Meter,
    ) -> Iterator[None]:
        """Takes what is new of the tables, one record a step.

        `closed`: query (label) → event time, ms, up to which its windows are closed, so that rows
        from before are needed no more. Raises Unavailable, TooManyRows.
        """
        return iter(())

    def keep_versions(self, most: int) -> None:
        """Keep `most` versions of each table row, not only the current one.

        Called before the first `catch_up`.
        """
        return

    def remarks(self, follower: TableFollower | None) -> Mapping[str, str]:
        """Query (label) → what is wrong with its table, for people."""
        return {}

    def whole(self, label: str, revision: int) -> dict[str, bytes]:
        """The whole state of one query, as if nothing of it had been written yet.

        Keys are what follows `place|label|` in keys of `ew.windows`.
        """
        return {}


class Stateless(States):
    """States of kinds that keep nothing here: their records depend on the batch alone.

    Spark keeps their windows, or they have none.
    """

    def __init__(self, outputs: Callable[[pa.Table, emit.Batch, emit.Broken], Records]) -> None:
        self._outputs = outputs

    def outputs(self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken) -> Records:
        """See States."""
        return self._outputs(rows, batch, broken)


@dataclass(frozen=True, slots=True)
class Job(ABC):
    """All queries of one lane: those of the same streams and kind, or a single isolated query."""

    kind: LaneKind
    sources: tuple[str, ...]
    """The streams that it reads, that of FROM first."""
    fields: tuple[tuple[str, FieldType], ...]
    """Only those that its queries read, sorted."""
    queries: tuple[Registered, ...]

    is_driven: ClassVar[bool] = False
    """Does the driver make its rows, one reading after the other? Its states stand on `ew.windows`,
    and a batch has fewer readings."""
    has_spark_state: ClassVar[bool] = False
    """Does Spark keep its windows? Then its rows are partials, and Spark is told what to evict."""
    is_of_tables: ClassVar[bool] = False
    """Does it read tables alone? Its records only say that something is new."""
    waits_for_partners: ClassVar[bool] = False
    """Do its rows wait for other readings? A preview shows them without."""
    looks_back: ClassVar[bool] = False
    """Do its rows depend on rows of tables, or on readings before, however old? What retention took
    from the logs is then unknown, and so is what its earlier rows would be."""

    @property
    def stream(self) -> str:
        """The stream of FROM."""
        return self.sources[0]

    @property
    def source_topics(self) -> CombinedTopics:
        """The topics of its sources, with their partitions numbered as one topic's."""
        return CombinedTopics(tuple(map(topics.stream_topic, self.sources)))

    @property
    def state_place(self) -> str:
        """Begins the keys of its states on `ew.windows`."""
        return "+".join(self.sources)

    @abstractmethod
    def graph(self, records: DataFrame, partitions: int = 1, dials: Dials = NO_DIALS) -> DataFrame:
        """Build the plan from a Kafka source's records of the job's topics.

        `partitions` is the number of their partitions. It returns a streaming frame to be run in
        update mode; its rows are what `States.outputs` takes.
        """

    @abstractmethod
    def new_states(self) -> States:
        """A state that knows nothing yet."""

    def restored(
        self,
        rows: Mapping[str, bytes],
        record: LaneRecord,
    ) -> States:
        """What was known after the last committed batch.

        `rows`: key → value of `ew.windows` (state_parts.joined); `record`: as it was then.
        """
        return self.new_states()

    def late(
        self,
        rows: pa.Table,
        batch: emit.Batch,
        oldest: int | None,
        frames: Callable[[], Iterable[bytes | None]],
    ) -> list[late.LateWindow]:
        """What of a batch came after its windows were closed.

        `oldest`: event time, ms, of its oldest reading; `frames` reads its records once more, which
        is done only where that is of a time when windows are closed.
        """
        queries = [registered.query for registered in self.queries]
        closed = [emit.closed(query, batch.top_before) for query in queries]
        ends = [end for end in closed if end is not None]
        if not ends or oldest is None or oldest >= max(ends):
            return []
        return late.late_windows(frames(), queries, dict(self.fields), closed)

    @classmethod
    def why_not(cls, query: Query, *, is_rebuild: bool) -> str | None:
        """Why a query of the kind cannot be repaired, or rebuilt, for people; None: it can."""
        if is_rebuild:
            return None
        if query.window.is_sequence:
            return (
                "sessions and windows by count depend on what came before them: `query rebuild` "
                "computes all of them again"
            )
        if not query.window.is_all:
            return None
        if cls.is_driven:
            return (
                "a query without a window has one that is never closed: `query rebuild` computes "
                "it again"
            )
        return (
            "a query without a window takes each reading, however late it comes, so there is "
            "nothing to repair"
        )

    @classmethod
    def needs_all(cls, query: Query) -> bool:
        """Can its rows be computed only from the first reading on?"""
        return cls.looks_back or query.window.is_sequence

    @classmethod
    def first_open(cls, query: Query, top: int | None) -> int:
        """Windows that begin before it (ms) are closed with event time at `top`.

        Those of a row that the driver makes of a single reading are the reading's millisecond.
        """
        if cls.is_driven and query.is_rows and top is not None:
            return begin_of_the_next(query.window, query.window.over(top - query.kept_ms))
        closed = emit.closed(query, top)
        return 0 if closed is None else begin_of_the_next(query.window, closed)

    @classmethod
    def tables_of(cls, query: Query) -> tuple[str, ...]:
        """The topics of the tables that complete its readings."""
        return () if query.join is None else (query.join.topic,)

    def near(self, records: DataFrame, first: int, stop: int) -> DataFrame:
        """Leave out records that surely have no reading of [first, stop), ms.

        All are there where it is not worth looking.
        """
        return records


def lane_place(registered: Registered) -> str:
    """The name of this query's lane, beside its kind: the streams it reads.

    An isolated query's lane has the query's label in its name, too.
    """
    streams = "+".join(streams_of(registered.query))
    return f"{streams}{APART}{registered.label}" if registered.is_isolated else streams


def begin_of_the_next(window: Window, closed: int) -> int:
    """Windows that begin before it end at `closed` or earlier. `closed`: where a window ends."""
    return closed if window.unit is not None else closed - window.size_ms + 1
