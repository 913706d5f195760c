"""Queries that join a table: Spark decodes and filters the readings; the driver finds their rows and folds what comes of them.

    records ─ decode ─ correct ─ observe ─ readings ─ one row a reading and query ─→ its row as of event time ─→ WHERE, keys, windows

The lane's plan has no state. Its tables are read up to their ends before each batch. Their rows, how far they were read, and the windows
that are open stand on `ew.windows`, written in the transaction that holds the batch's results and the lane's record: what was told with
one state of the tables is never told again with another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis import emit, finish, late, sequences
from edgewake.cloud.analysis.clock_correction import correct
from edgewake.cloud.analysis.columns import column
from edgewake.cloud.analysis.decode import decode, readings
from edgewake.cloud.analysis.evaluate import Evaluated, Row, evaluated
from edgewake.cloud.analysis.lane_kind import LaneKind
from edgewake.cloud.analysis.query_plan import Registered, TableJoin
from edgewake.cloud.analysis.sequence_queries import PLACE, Fold, States, kept_rows, new_in_order, without_foreign
from edgewake.cloud.analysis.table_follower import Place, TableFollower
from edgewake.cloud.analysis.table_rows import rows_of, topic_of, typed
from edgewake.cloud.analysis.table_versions import Versions, key_text
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import result, topics
from edgewake.protocol.field_type import FieldType

_READ_TO: Final = "@"
"""Of a query on `ew.windows`: how far its table was read."""
_READING: Final = ("device", "t", "received_at")


@dataclass
class Table:
    """A query's table."""

    join: TableJoin
    versions: Versions = field(default_factory=Versions)
    read_to: dict[int, int] = field(default_factory=dict)
    """Partition → offset of the next record."""

    @property
    def topic(self) -> str:
        """Where its rows come from."""
        return topic_of(self.join.table, dict(self.join.columns))

    def put(self, key: bytes | None, value: bytes | None, closed: int | None) -> None:
        """A record of its topic."""
        columns = self.join.columns
        for row in rows_of(self.topic, key, value):
            values = {name: typed(row.columns.get(name), kind) for name, kind in columns}
            place = key_text([values[name] for _, name in self.join.keys])
            if place is not None:
                self.versions.put(place, row.since, [values[name] for name, _ in columns], closed=closed)

    def dump(self) -> dict[str, bytes | None]:
        """What changed since the last time."""
        read_to = orjson.dumps(self.read_to, option=orjson.OPT_NON_STR_KEYS)
        return self.versions.dump() | {_READ_TO: read_to}

    def load(self, key: str, value: Any) -> None:
        """The reverse of `dump`."""
        if key == _READ_TO:
            self.read_to = {int(partition): offset for partition, offset in value.items()}
        else:
            self.versions.load(key, value)


@dataclass
class JoinStates(States):
    """Of all queries of a lane: open windows and tables."""

    tables: dict[str, Table] = field(default_factory=dict)
    """By the query's label."""

    def follower(self, config: KafkaConfig) -> TableFollower:
        """Reads all tables from where the furthest back of their queries is. Raises Unavailable."""
        starts: dict[Place, int] = {}
        for table in self.tables.values():
            for partition, offset in table.read_to.items():
                behind = [other.read_to.get(partition, 0) for other in self.tables.values() if other.topic == table.topic]
                starts[table.topic, partition] = min(offset, *behind)
        return TableFollower(config, {table.topic for table in self.tables.values()}, starts)

    def catch_up(self, follower: TableFollower, closed: Mapping[str, int | None]) -> None:
        """Take what is new of the tables. `closed`: by label, see Versions.put. Raises Unavailable."""
        for record in follower.read():
            for label, table in self.tables.items():
                if table.topic == record.topic and record.offset >= table.read_to.get(record.partition, 0):
                    table.put(record.key, record.value, closed.get(label))
        for (topic, partition), position in follower.positions.items():
            for table in self.tables.values():
                if table.topic == topic:
                    table.read_to[partition] = max(position, table.read_to.get(partition, 0))


def new_states(queries: Sequence[Registered]) -> JoinStates:
    """Nothing known yet."""
    joins = {registered.label: registered.query.join for registered in queries}
    tables = {label: Table(join) for label, join in joins.items() if join is not None}
    return JoinStates({label: {} for label in tables}, [], tables)


def read_states(config: KafkaConfig, stream: str, queries: Sequence[Registered]) -> JoinStates:
    """What was known after the last committed batch. Call after `Transactions` is made. Raises Unavailable."""
    found = new_states(queries)
    for key, value in kept_rows(config, _place(stream)).items():
        _, label, rest = key.split("|", 2)
        if label not in found.tables:
            found.foreign.append(key)
        elif rest.startswith("{"):
            found.of[label][rest] = sequences.load(orjson.loads(value))
        else:
            found.tables[label].load(rest, orjson.loads(value))
    return found


def _place(stream: str) -> str:
    """Where a lane of joins keeps what it keeps; no stream is called so."""
    return f"join.{stream}"


@dataclass(frozen=True, slots=True)
class JoinJob:
    """All queries of one stream that join a table (see pipeline.Job)."""

    stream: str
    fields: tuple[tuple[str, FieldType], ...]
    queries: tuple[Registered, ...]
    kind: LaneKind = LaneKind.JOIN

    def graph(self, records: DataFrame, partitions: int = 1) -> DataFrame:
        """See Job; out: query (id), partition, offset, number and reading (JSON, of _READING and the fields)."""
        fields: Mapping[str, FieldType] = dict(self.fields)
        frames = late.observe(correct(decode(records, fields)), partitions)
        each = readings(frames, fields, ("partition", "offset"), numbered=True)
        rows = F.array(*[_row(registered, sorted(fields)) for registered in self.queries])
        return each.select(F.explode(rows).alias("row")).where(F.col("row").isNotNull()).select("row.*")

    def outputs(self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken) -> Iterator[emit.Output]:
        """See Job: results, states, then watermarks."""
        states = batch.states
        assert isinstance(states, JoinStates)
        rows = new_in_order(rows, batch.emitted.get(topics.stream_topic(self.stream), {}))
        for registered in self.queries:
            table = states.tables[registered.label]
            mine = rows.filter(pc.equal(rows["query"], registered.id))
            try:
                joined = list(_Joined(registered, table, sorted(dict(self.fields))).rows(mine))
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                broken[registered.label] = f"{type(error).__name__}: {error}"
                continue
            if registered.query.is_rows:
                yield from _rows_told(registered, joined, batch.revision)
            else:
                values = ((t, group, numbers) for t, group, numbers, _ in joined)
                yield from Fold(_place(self.stream), registered, states.of[registered.label], batch).outputs(values, broken)
            for key, value in table.dump().items():
                yield emit.Output(topics.WINDOWS, f"{_place(self.stream)}|{registered.label}|{key}".encode(), value)
        yield from without_foreign(states)
        yield from emit.watermarks([registered for registered in self.queries if registered.label not in broken], batch)

    def committed(self, rows: pa.Table, revision: int) -> None:
        """See Job: results are nowhere but in Kafka."""


def _row(registered: Registered, fields: Sequence[str]) -> Column:
    query = registered.query
    reading = F.to_json(F.struct(*_READING, *fields), {"ignoreNullFields": "false"})
    row = F.struct(F.lit(registered.id).cast("bigint").alias("query"), *PLACE, reading.alias("reading"))
    return row if query.where is None else F.when(column(query.where, F.col), row)


class _Joined:
    """A query's readings with their rows: what it computes of them."""

    def __init__(self, registered: Registered, table: Table, fields: Sequence[str]) -> None:
        query, join = registered.query, table.join
        self._query, self._table = query, table
        self._names = (*_READING, *fields)
        self._nothing: list[Any] = [None] * len(join.columns)
        at = {name: i for i, name in enumerate((*self._names, *(f"{join.table}.{name}" for name, _ in join.columns)))}
        self._place = at[query.window.time]
        self._key = [(at[ours], kind) for ours, kind in ((ours, dict(join.columns)[theirs]) for ours, theirs in join.keys)]
        self._where = None if join.where is None else evaluated(join.where, at)
        self._groups: list[tuple[str, Evaluated]] = [(key.name, evaluated(key.expression, at)) for key in query.keys]
        self._numbers = [evaluated(number, at) for number in (*query.conditions, *query.numbers)]
        self._outputs = [(output.name, evaluated(output.expression, at)) for output in query.outputs] if query.is_rows else []

    def rows(self, mine: pa.Table) -> Iterator[tuple[int, str, list[float | None], dict[str, Any]]]:
        """Time, group (JSON), numbers and values of each reading that has its row and passes WHERE."""
        places = zip(*[mine[name].to_pylist() for name in PLACE], strict=True)
        for place, text in zip(places, mine["reading"].to_pylist(), strict=True):
            reading = orjson.loads(text)
            row = self._with_table([reading[name] for name in self._names])
            if row is None or (self._where is not None and self._where(row) is not True):
                continue
            if self._query.is_rows:
                group: dict[str, Any] = {"device": row[0], "reading": ":".join(map(str, place))}
            else:
                group = {name: compute(row) for name, compute in self._groups}
            numbers = [_number(compute(row)) for compute in self._numbers]
            values = {name: compute(row) for name, compute in self._outputs}
            yield row[self._place], orjson.dumps(group, option=orjson.OPT_SORT_KEYS).decode(), numbers, values

    def _with_table(self, reading: list[Any]) -> Row | None:
        key = key_text([typed(reading[at], kind) for at, kind in self._key])
        found = self._table.versions.at(key, reading[1])
        if found is None and not self._table.join.is_left:
            return None
        return [*reading, *(self._nothing if found is None else found)]


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def _rows_told(
    registered: Registered, joined: Sequence[tuple[int, str, list[float | None], dict[str, Any]]], revision: int
) -> Iterator[emit.Output]:
    for t, group, _, values in joined:
        others = "".join(f',"{name}":{finish.as_json(value)}' for name, value in values.items())
        head = f'{{"query":"{registered.query.name}","window_start":{t},"window_end":{t + 1},{group[1:-1]}'
        body = f'{head}{others},"revision":{revision},"final":true}}'
        yield emit.Output(registered.topic, result.result_key(t, t + 1, group), body.encode(), result.KIND_HEADERS)
