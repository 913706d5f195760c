"""Queries over tables: FROM is a table, and so are what it is joined with and the result.

Rows of the result are emitted, changed and withdrawn.

    records of both streams ─ observe ─→ something is new
    both tables, read up to their ends ─→ folds/table_state.py ─ rows that may be others ─→
                               WHERE, columns ─→ emitted, emitted again, withdrawn

Spark only says that something is new, and how far event time has come. The tables' rows, how far
they were read, and what was emitted of each are on `ew.windows`, written in the transaction that
holds the results and the lane's record. A table is read from the beginning of its stream, whenever
the query comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame

from edgewake.cloud.analysis.folds.enriched import Computed
from edgewake.cloud.analysis.folds.table_follower import Place, TableFollower
from edgewake.cloud.analysis.folds.table_state import Linked, Row
from edgewake.cloud.analysis.folds.table_versions import key_text
from edgewake.cloud.analysis.jobs.job import NO_DIALS, Dials, Job, States
from edgewake.cloud.analysis.plan import late
from edgewake.cloud.analysis.plan.clock_correction import correct
from edgewake.cloud.analysis.plan.combined_records import numbered
from edgewake.cloud.analysis.plan.decode import decode
from edgewake.cloud.analysis.plan.table_rows import TableRecord, rows_of, typed
from edgewake.cloud.analysis.results import emit, finish
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.query import Query, Registered
from edgewake.cloud.queries.terms.expressions import READING, TIMES
from edgewake.cloud.queries.terms.windows import ALL_TIME_MS
from edgewake.protocol import topics
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.ops import result

READ_TO: Final = "@"
"""How far the tables of a query on `ew.windows` were read."""
_DEVICE_ROW: Final = b"|status"
"""Ends the key of what a device says of itself."""


class TableJob(Job):
    """All queries that join one stream's table with one other's, or with none.

    Records of its sources only say that something is new.
    """

    is_driven = True
    is_of_tables = True
    looks_back = True

    @classmethod
    def why_not(cls, query: Query, *, is_rebuild: bool) -> str | None:  # noqa: ARG003  (its kind says it)
        if is_rebuild:
            return None
        return (
            "a table has the latest reading of each key, however late it comes, so there is "
            "nothing to repair"
        )

    def graph(self, records: DataFrame, partitions: int = 1, dials: Dials = NO_DIALS) -> DataFrame:
        """See Job; out: partition (its number) and offset of each frame."""
        frames = correct(decode(numbered(records, self.sources), {}))
        return late.observe(frames, partitions).select("partition", "offset")

    def new_states(self) -> TableStates:
        return TableStates(self)

    def restored(self, rows: Mapping[str, bytes], record: LaneRecord) -> TableStates:
        found = self.new_states()
        for key, value in rows.items():
            _, label, rest = key.split("|", 2)
            if label in found.views:  # else paused, or failed
                found.views[label].load(rest, value)
        return found


class TableStates(States):
    """States of all queries of a lane, by label: their tables."""

    def __init__(self, job: TableJob) -> None:
        self._job = job
        self.views = {one.label: TableView(one, job.fields) for one in job.queries}

    def follower(self, kafka: KafkaConfig) -> TableFollower:
        """See States: reads all tables from where the furthest back of the queries is."""
        starts: dict[Place, int] = {}
        for topic in (wanted := {topic for view in self.views.values() for topic in view.topics}):
            reading = [
                view.linked.read_to.get(topic, {})
                for view in self.views.values()
                if topic in view.topics
            ]
            for partition in {partition for one in reading for partition in one}:
                starts[topic, partition] = min(one.get(partition, 0) for one in reading)
        return TableFollower(kafka, wanted, starts)

    def catch_up(
        self, follower: TableFollower, closed: Mapping[str, int | None], meter: Meter
    ) -> Iterator[None]:
        for one in follower.read():
            for label, view in self.views.items():
                meter.run(label, partial(view.put, one))
            yield
        for (topic, partition), position in follower.positions.items():
            for view in self.views.values():
                view.read(topic, partition, position)

    def whole(self, label: str, revision: int) -> dict[str, bytes]:
        return dict(self.views[label].whole())

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        """See States; `rows` say that there is something; what, the tables say."""
        for label, view in self.views.items():
            try:
                yield from batch.meter.of(label, view.outputs(self._job.state_place, batch))
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                broken[label] = f"{type(error).__name__}: {error}"


class TableView:
    """One query: its tables, and what becomes of their rows."""

    def __init__(self, registered: Registered, fields: Sequence[tuple[str, FieldType]]) -> None:
        """`fields`: of the stream of FROM, those that its queries read."""
        query, join = registered.query, registered.query.join
        self.registered, self._fields, self._join = registered, fields, join
        self.linked = Linked()
        self._has_moved = True
        """Is how far the tables were read not written down?"""
        self._from = topics.stream_topic(query.stream)
        self._table = None if join is None else join.topic
        self._columns = () if join is None else join.columns
        names = (*READING, *(name for name, _ in fields))
        kinds = dict(self._columns)
        self._keys = [names.index(name) for name in query.key_names]
        self._refers = (
            []
            if join is None
            else [(names.index(ours), kinds[theirs]) for ours, theirs in join.keys]
        )
        self._nothing: list[Any] = [None] * len(self._columns)
        table = "" if join is None else join.table
        self._computed = Computed(
            query, (*names, *(f"{table}.{name}" for name, _ in self._columns))
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of its tables."""
        return (self._from,) if self._table is None else (self._from, self._table)

    def put(self, one: TableRecord) -> None:
        """A record of a table."""
        if one.topic not in self.topics or one.offset < self.linked.read_to.get(one.topic, {}).get(
            one.partition, 0
        ):
            return
        if one.topic == topics.DEVICES and one.value is None:
            self._forget_device(one.key or b"")
        for i, row in enumerate(rows_of(one.topic, one.key, one.value)):
            place = (one.partition, one.offset, i)
            if one.topic == self._from:
                self._put_left(row.since, place, row.columns)
            else:
                self._put_right(row.since, place, row.columns)

    def read(self, topic: str, partition: int, position: int) -> None:
        """Everything before it was put."""
        known = self.linked.read_to.setdefault(topic, {}) if topic in self.topics else None
        if known is not None and position > known.get(partition, 0):
            known[partition] = position
            self._has_moved = True

    def _put_left(
        self, since: int, place: tuple[int, int, int], columns: Mapping[str, Any]
    ) -> None:
        fields = [typed(columns.get(name), kind) for name, kind in self._fields]
        values = [columns["device"], *(columns[name] for name in TIMES), *fields]
        key = key_text([values[at] for at in self._keys])
        if key is not None:  # null equals nothing, so it is nobody's key
            self.linked.put_left(
                key,
                Row(
                    since,
                    place,
                    values,
                    key_text([typed(values[at], kind) for at, kind in self._refers]),
                ),
            )

    def _put_right(
        self, since: int, place: tuple[int, int, int], columns: Mapping[str, Any]
    ) -> None:
        assert self._join is not None
        values = {name: typed(columns.get(name), kind) for name, kind in self._columns}
        key = key_text([values[name] for _, name in self._join.keys])
        if key is not None:
            self.linked.put_right(
                key, Row(since, place, [values[name] for name, _ in self._columns])
            )

    def _forget_device(self, key: bytes) -> None:
        if (
            key.endswith(_DEVICE_ROW)
            and self._join is not None
            and [theirs for _, theirs in self._join.keys] == ["device"]
        ):
            text = key_text([key.removesuffix(_DEVICE_ROW).decode(errors="replace")])
            assert text is not None
            self.linked.remove_right(text)

    def outputs(self, place: str, batch: emit.Batch) -> Iterator[emit.Output]:
        """What is news of the result, and what is to be written down."""
        if self.linked.forgotten:
            batch.lacks_before[self.registered.label] = batch.top or 0
        due, gone = self.linked.take()
        for row in gone:
            if row.emitted:
                yield self._output(row, b'"withdrawn":true', batch.revision)
        for key in due:
            yield from self._news(self.linked.left.of[key], key, batch.revision)
        yield from self._states(place)

    def _news(self, row: Row, key: str, revision: int) -> Iterator[emit.Output]:
        values = self._values(row)
        made = None if values is None else self._computed.of(values, {})
        if made is None:
            if row.emitted:
                row.emitted = ""
                self.linked.left.changed.add(key)
                yield self._output(row, b'"withdrawn":true', revision)
            return
        body = ",".join(
            f'"{name}":{finish.as_json(value)}' for name, value in made.values.items()
        ).encode()
        emitted = blake2b(body, digest_size=8).hexdigest()
        if emitted != row.emitted:
            row.emitted = emitted
            self.linked.left.changed.add(key)
            yield self._output(row, body, revision)

    def _values(self, row: Row) -> list[Any] | None:
        """A row of FROM with what it is joined with; None where it is joined with nothing."""
        if self._join is None:
            return row.values
        other = None if row.refers is None else self.linked.right.of.get(row.refers)
        if other is None and not self._join.is_left:
            return None
        return [*row.values, *(self._nothing if other is None else other.values)]

    def _output(self, row: Row, body: bytes, revision: int) -> emit.Output:
        names = self.registered.query.key_names
        group = orjson.dumps(
            {name: row.values[at] for name, at in zip(names, self._keys, strict=True)},
            option=orjson.OPT_SORT_KEYS,
        )
        parts = [
            b'"query":"%s","window_start":0,"window_end":%d'
            % (self.registered.query.name.encode(), ALL_TIME_MS),
            group[1:-1],
            body,
        ]
        value = b'{%s,"revision":%d,"final":false}' % (
            b",".join(part for part in parts if part),
            revision,
        )
        return emit.Output(
            self.registered.topic, result.result_key(0, ALL_TIME_MS, group.decode()), value
        )

    def _states(self, place: str) -> Iterator[emit.Output]:
        start = f"{place}|{self.registered.label}|"
        for name, value in self.linked.dump():
            yield emit.Output(topics.WINDOWS, f"{start}{name}".encode(), value)
        if self._has_moved:
            yield emit.Output(topics.WINDOWS, f"{start}{READ_TO}".encode(), self._read_to())
            self._has_moved = False

    def _read_to(self) -> bytes:
        return orjson.dumps(self.linked.read_to, option=orjson.OPT_NON_STR_KEYS)

    def load(self, name: str, value: bytes) -> None:
        """Load a part of the state that was written down."""
        if name == READ_TO:
            read_to = orjson.loads(value)
            self.linked.read_to = {
                topic: {int(partition): at for partition, at in of.items()}
                for topic, of in read_to.items()
            }
            self._has_moved = False
        else:
            self.linked.load(name, value)

    def whole(self) -> Mapping[str, bytes]:
        """All that is known, as if none of it was written down."""
        self.linked.left.changed.update(self.linked.left.of)
        self.linked.right.changed.update(self.linked.right.of)
        return {name: value for name, value in self.linked.dump() if value is not None} | {
            READ_TO: self._read_to()
        }
