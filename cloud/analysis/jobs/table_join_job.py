"""Queries whose readings the driver completes.

A reading gets a table's row, and values of the device's earlier readings.

    records ─ decode ─ correct ─ observe ─ readings ─ one row a reading and query ─→
    folds/enriched.py ─→ WHERE, keys, windows

The lane's plan has no state. Its tables are read up to their ends before each batch. Their rows,
how far they were read, histories, and the windows that are open stand on `ew.windows`, written in
the transaction that holds the batch's results and the lane's record: a result that was emitted with
one state of the tables is never emitted again with another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.folds.enriched import HISTORY, Completed, Histories, Table
from edgewake.cloud.analysis.folds.table_follower import Place, TableFollower
from edgewake.cloud.analysis.folds.table_versions import VERSIONS_MAX
from edgewake.cloud.analysis.jobs.job import NO_DIALS, Dials, Job, States, TooManyRows
from edgewake.cloud.analysis.jobs.placed_rows import exploded, new_in_order, passing, place_columns
from edgewake.cloud.analysis.jobs.row_results import rows_told
from edgewake.cloud.analysis.jobs.window_fold import Fold, OpenWindows, dumped, loaded
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.analysis.results.meter import Meter
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.queries.query import Query, Registered
from edgewake.cloud.queries.terms.expressions import READING
from edgewake.protocol import topics


class TableJoinJob(Job):
    """All queries of one stream that join a table or look back."""

    is_driven = True
    looks_back = True

    @classmethod
    def why_not(cls, query: Query, *, is_rebuild: bool) -> str | None:
        join = query.join
        if join is not None and (join.foreign or join.topic == topics.DEVICES):
            return (
                f"Kafka keeps only the last row of each key of the table `{join.table}`, so "
                "its earlier rows are unknown."
                " The header `reopen` keeps windows open for what comes late, with the rows of its "
                "time; a table that is a stream keeps all"
                " rows, and can be computed again; or remove the query and add it under a new name "
                "to begin with what is known now"
            )
        return super().why_not(query, is_rebuild=is_rebuild)

    @property
    def state_place(self) -> str:
        """See Job; no stream is called so, and a lane of sequences may stand beside it."""
        return f"join.{self.stream}"

    def graph(self, records: DataFrame, partitions: int = 1, dials: Dials = NO_DIALS) -> DataFrame:
        """See Job. The columns: query (id), partition, offset, number and reading.

        `reading` is JSON of READING and the fields.
        """
        names = [name for name, _ in self.fields]
        rows = (_row(registered, names) for registered in self.queries)
        return exploded(self, records, partitions, rows)

    def new_states(self) -> TableJoinStates:
        return TableJoinStates(self)

    def restored(self, rows: Mapping[str, bytes], record: LaneRecord) -> TableJoinStates:
        found = self.new_states()
        for key, value in rows.items():
            _, label, rest = key.split("|", 2)
            if label not in found.of:  # paused, or failed
                continue
            if rest.startswith("{"):
                found.of[label][rest] = loaded(value)
            elif rest.startswith(HISTORY):
                found.histories[label].load(rest, orjson.loads(value))
            else:
                found.tables[label].load(rest, orjson.loads(value))
        return found


class TableJoinStates(States):
    """States of all queries of a lane, by label: open windows, tables and histories."""

    def __init__(self, job: TableJoinJob) -> None:
        self._job = job
        self.of: dict[str, OpenWindows] = {one.label: {} for one in job.queries}
        self.tables = {
            one.label: Table(one.query.join) for one in job.queries if one.query.join is not None
        }
        self.histories = {one.label: Histories(one.query.history) for one in job.queries}
        self._said: dict[str, int] = {}
        """Label → how many of its devices and keys were forgotten when that was said last."""
        self._rows_max: int | None = None

    def has_forgotten(self, label: str) -> bool:
        """Tell whether a device or key of this query was forgotten since the last call.

        More of them came than are kept.
        """
        table = self.tables.get(label)
        now = self.histories[label].forgotten + (0 if table is None else table.versions.forgotten)
        before, self._said[label] = self._said.get(label, 0), now
        return now > before

    def remarks(self, follower: TableFollower | None) -> dict[str, str]:
        missing = set() if follower is None else follower.missing
        found = {
            label: f"topic {table.topic} is not there, so its table has no rows"
            if table.topic in missing
            else table.remark
            for label, table in self.tables.items()
            if table.join.foreign
        }
        return {label: text for label, text in found.items() if text}

    def follower(self, kafka: KafkaConfig) -> TableFollower | None:
        """See States: reads all tables from where the furthest back of their queries is."""
        if not self.tables:
            return None
        starts: dict[Place, int] = {}
        for table in self.tables.values():
            for partition, offset in table.read_to.items():
                behind = [
                    other.read_to.get(partition, 0)
                    for other in self.tables.values()
                    if other.topic == table.topic
                ]
                starts[table.topic, partition] = min(offset, *behind)
        return TableFollower(kafka, {table.topic for table in self.tables.values()}, starts)

    def catch_up(
        self, follower: TableFollower, closed: Mapping[str, int | None], meter: Meter
    ) -> Iterator[None]:
        for count, record in enumerate(follower.read()):
            if self._rows_max is not None and count >= self._rows_max:
                raise TooManyRows(f"its table has more than {self._rows_max} rows")
            for label, table in self.tables.items():
                if table.topic == record.topic and record.offset >= table.read_to.get(
                    record.partition, 0
                ):
                    meter.run(label, partial(table.put, record, closed.get(label)))
            yield
        for (topic, partition), position in follower.positions.items():
            for table in self.tables.values():
                if table.topic == topic:
                    table.read_to[partition] = max(position, table.read_to.get(partition, 0))

    def keep_versions(self, most: int) -> None:
        self._rows_max = most
        for table in self.tables.values():
            table.versions.most = most

    def whole(self, label: str, revision: int) -> dict[str, bytes]:
        histories, table = self.histories[label], self.tables.get(label)
        histories.changed.update(histories.of)
        found = histories.dump()
        if table is not None:
            table.versions.cut(VERSIONS_MAX)
            found |= table.dump()
        return dumped(self.of[label]) | {
            key: value for key, value in found.items() if value is not None
        }

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        rows = new_in_order(rows, self._job.source_topics.flat(batch.emitted))
        for registered in self._job.queries:
            yield from batch.meter.of(
                registered.label, self._outputs_of(registered, rows, batch, broken)
            )
        yield from emit.watermarks(
            [registered for registered in self._job.queries if registered.label not in broken],
            batch,
        )

    def _outputs_of(
        self, registered: Registered, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        label, place = registered.label, self._job.state_place
        table, histories = self.tables.get(label), self.histories[label]
        mine = rows.filter(pc.equal(rows["query"], registered.id))
        names = [name for name, _ in self._job.fields]
        try:
            joined = list(Completed(registered.query, table, histories, names).rows(mine))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            broken[label] = f"{type(error).__name__}: {error}"
            return
        if self.has_forgotten(label):
            batch.lacks_before[label] = batch.top or 0
        if registered.query.is_rows:
            yield from rows_told(registered, joined, batch.revision)
        else:
            values = ((one.t, one.group, one.numbers) for one in joined)
            yield from Fold(place, registered, self.of[label], batch).outputs(values, broken)
        for key, value in (({} if table is None else table.dump()) | histories.dump()).items():
            yield emit.Output(topics.WINDOWS, f"{place}|{label}|{key}".encode(), value)


def _row(registered: Registered, fields: Sequence[str]) -> Column:
    query = registered.query
    reading = F.to_json(F.struct(*READING, *fields), {"ignoreNullFields": "false"})
    row = F.struct(
        F.lit(registered.id).cast("bigint").alias("query"),
        *place_columns(),
        reading.alias("reading"),
    )
    return passing(query, row)
