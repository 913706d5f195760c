"""Queries whose readings the driver completes: with a table's row, and with what the device's
readings before say of this one.

    records ─ decode ─ correct ─ observe ─ readings ─ one row a reading and query ─→ enriched.py ─→
    WHERE, keys, windows

The lane's plan has no state. Its tables are read up to their ends before each batch. Their rows,
how far they were read, histories, and the windows that are open stand on `ew.windows`, written in
the transaction that holds the batch's results and the lane's record: what was told with one state
of the tables is never told again with another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.folds import sequences
from edgewake.cloud.analysis.folds.enriched import (
    HISTORY,
    Completed,
    CompletedReading,
    Histories,
    Table,
)
from edgewake.cloud.analysis.folds.table_follower import Place, TableFollower
from edgewake.cloud.analysis.jobs.sequence_job import Fold, States, new_in_order, place_columns
from edgewake.cloud.analysis.plan import late
from edgewake.cloud.analysis.plan.clock_correction import correct
from edgewake.cloud.analysis.plan.columns import column
from edgewake.cloud.analysis.plan.decode import decode, readings
from edgewake.cloud.analysis.results import emit, finish
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.expressions import READING
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import result, topics
from edgewake.protocol.field_type import FieldType


@dataclass
class JoinStates(States):
    """Of all queries of a lane, by label: open windows, tables and histories."""

    tables: dict[str, Table] = field(default_factory=dict)
    histories: dict[str, Histories] = field(default_factory=dict)
    _said: dict[str, int] = field(default_factory=dict)
    """Label → how many of its devices and keys were forgotten when that was said last."""

    def has_forgotten(self, label: str) -> bool:
        """Was any device or key of this query forgotten since this was asked last, because there
        are more than are kept?
        """
        table = self.tables.get(label)
        now = self.histories[label].forgotten + (0 if table is None else table.versions.forgotten)
        before, self._said[label] = self._said.get(label, 0), now
        return now > before

    def remarks(self, follower: TableFollower | None) -> dict[str, str]:
        """Query (label) → what is wrong with its table."""
        missing = set() if follower is None else follower.missing
        found = {
            label: f"topic {table.topic} is not there, so its table has no rows"
            if table.topic in missing
            else table.remark
            for label, table in self.tables.items()
            if table.join.foreign
        }
        return {label: text for label, text in found.items() if text}

    def follower(self, config: KafkaConfig) -> TableFollower:
        """Reads all tables from where the furthest back of their queries is."""
        starts: dict[Place, int] = {}
        for table in self.tables.values():
            for partition, offset in table.read_to.items():
                behind = [
                    other.read_to.get(partition, 0)
                    for other in self.tables.values()
                    if other.topic == table.topic
                ]
                starts[table.topic, partition] = min(offset, *behind)
        return TableFollower(config, {table.topic for table in self.tables.values()}, starts)

    def catch_up(
        self, follower: TableFollower, closed: Mapping[str, int | None], meter: Meter
    ) -> None:
        """Take what is new of the tables.

        `closed`: by label, see Versions.put. Raises Unavailable.
        """
        for record in follower.read():
            for label, table in self.tables.items():
                if table.topic == record.topic and record.offset >= table.read_to.get(
                    record.partition, 0
                ):
                    meter.run(label, partial(table.put, record, closed.get(label)))
        for (topic, partition), position in follower.positions.items():
            for table in self.tables.values():
                if table.topic == topic:
                    table.read_to[partition] = max(position, table.read_to.get(partition, 0))


def new_states(queries: Sequence[Registered]) -> JoinStates:
    """Nothing known yet."""
    tables = {
        registered.label: Table(registered.query.join)
        for registered in queries
        if registered.query.join is not None
    }
    histories = {registered.label: Histories(registered.query.history) for registered in queries}
    return JoinStates({label: {} for label in histories}, [], tables, histories)


def restored(queries: Sequence[Registered], rows: Mapping[str, bytes]) -> JoinStates:
    """The states that these rows of `ew.windows` hold."""
    found = new_states(queries)
    for key, value in rows.items():
        _, label, rest = key.split("|", 2)
        if label not in found.of:  # paused, or failed
            continue
        if rest.startswith("{"):
            found.of[label][rest] = sequences.load(orjson.loads(value), len(value))
        elif rest.startswith(HISTORY):
            found.histories[label].load(rest, orjson.loads(value))
        else:
            found.tables[label].load(rest, orjson.loads(value))
    return found


def place(stream: str) -> str:
    """Where a lane of joins keeps what it keeps; no stream is called so."""
    return f"join.{stream}"


@dataclass(frozen=True, slots=True)
class JoinJob:
    """All queries of one stream that join a table or look back (see aggregate_job.Job)."""

    stream: str
    fields: tuple[tuple[str, FieldType], ...]
    queries: tuple[Registered, ...]
    kind: LaneKind = LaneKind.JOIN

    def graph(self, records: DataFrame, partitions: int = 1) -> DataFrame:
        """See Job; out: query (id), partition, offset, number and reading (JSON, of READING and the
        fields).
        """
        fields: Mapping[str, FieldType] = dict(self.fields)
        frames = late.observe(correct(decode(records, fields)), partitions)
        each = readings(frames, fields, (), placed=True)
        rows = F.array(*[_row(registered, sorted(fields)) for registered in self.queries])
        return (
            each.select(F.explode(rows).alias("row"))
            .where(F.col("row").isNotNull())
            .select("row.*")
        )

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        """See Job: results, states, then watermarks."""
        states = batch.states
        assert isinstance(states, JoinStates)
        rows = new_in_order(rows, batch.emitted.get(topics.stream_topic(self.stream), {}))
        for registered in self.queries:
            yield from batch.meter.of(
                registered.label, self._outputs_of(registered, rows, states, batch, broken)
            )
        yield from emit.watermarks(
            [registered for registered in self.queries if registered.label not in broken], batch
        )

    def _outputs_of(
        self,
        registered: Registered,
        rows: pa.Table,
        states: JoinStates,
        batch: emit.Batch,
        broken: emit.Broken,
    ) -> Iterator[emit.Output]:
        label = registered.label
        table, histories = states.tables.get(label), states.histories[label]
        mine = rows.filter(pc.equal(rows["query"], registered.id))
        try:
            joined = list(
                Completed(
                    registered.query, table, histories, [name for name, _ in self.fields]
                ).rows(mine)
            )
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            broken[label] = f"{type(error).__name__}: {error}"
            return
        if states.has_forgotten(label):
            batch.lacks_before[label] = batch.top or 0
        if registered.query.is_rows:
            yield from rows_told(registered, joined, batch.revision)
        else:
            values = ((one.t, one.group, one.numbers) for one in joined)
            yield from Fold(place(self.stream), registered, states.of[label], batch).outputs(
                values, broken
            )
        for key, value in (({} if table is None else table.dump()) | histories.dump()).items():
            yield emit.Output(topics.WINDOWS, f"{place(self.stream)}|{label}|{key}".encode(), value)


def _row(registered: Registered, fields: Sequence[str]) -> Column:
    query = registered.query
    reading = F.to_json(F.struct(*READING, *fields), {"ignoreNullFields": "false"})
    row = F.struct(
        F.lit(registered.id).cast("bigint").alias("query"),
        *place_columns(),
        reading.alias("reading"),
    )
    return row if query.where is None else F.when(column(query.where, F.col), row)


def rows_told(
    registered: Registered, joined: Iterable[CompletedReading], revision: int
) -> Iterator[emit.Output]:
    """The records of rows that are final as soon as they are told."""
    for t, group, _, values, is_complete in joined:
        others = "".join(f',"{name}":{finish.as_json(value)}' for name, value in values.items())
        head = (
            f'{{"query":"{registered.query.name}","window_start":{t},"window_end":{t + 1},'
            f"{group[1:-1]}"
        )
        end = "" if is_complete else ',"complete":false'
        body = f'{head}{others},"revision":{revision},"final":true{end}}}'
        yield emit.Output(registered.topic, result.result_key(t, t + 1, group), body.encode())
