"""Queries that emit a reading only where it differs from the one before.

Spark decodes, filters and computes their columns; the driver compares them.

    records ─ decode ─ correct ─ observe ─ readings ─ one row a reading and query that it passes ─→
    the driver: the row before with the same `on_change` fields ─→ first or different: emitted

Of each key the hash of its last row is kept, so it takes the same few bytes whatever its texts are.
The hashes are rows of `ew.windows`, written in the transaction that holds the results and the
lane's record; a row is written only when it changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.jobs.job import NO_DIALS, Dials, Job, States
from edgewake.cloud.analysis.jobs.placed_rows import (
    exploded,
    json_of,
    new_in_order,
    passing,
    place_columns,
    result_columns,
)
from edgewake.cloud.analysis.jobs.row_results import ResultRow, result_rows, rows_of
from edgewake.cloud.analysis.plan.columns import column
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.terms.tree import Field
from edgewake.protocol import topics

KEYS_MAX: Final = 100_000
"""Keys of a query whose last row is known, some 200 bytes each. Beyond it the one that changed
longest ago is forgotten, so its next reading is emitted as its first."""
HASH_BYTES: Final = 16
"""Bytes of the hash of a key and of a row: two different ones are equal once in 10^38 pairs."""


class ChangeJob(Job):
    """All queries of one stream with the header `on_change`."""

    is_driven = True
    looks_back = True

    @property
    def state_place(self) -> str:
        """See Job; no stream is called so."""
        return f"change.{self.stream}"

    def graph(self, records: DataFrame, partitions: int = 1, dials: Dials = NO_DIALS) -> DataFrame:
        """See Job; out: placed_rows.result_columns, the reading's place, and of (JSON)."""
        return exploded(self, records, partitions, map(_row, self.queries))

    def new_states(self) -> ChangeStates:
        return ChangeStates(self)

    def restored(self, rows: Mapping[str, bytes], record: LaneRecord) -> ChangeStates:
        found = self.new_states()
        for key, value in rows.items():
            _, label, name = key.split("|", 2)
            if label in found.of:  # else paused, or failed
                found.of[label].of[name] = value.decode()
        return found


@dataclass
class LastRows:
    """The last row of each key, of one query."""

    of: dict[str, str] = field(default_factory=dict)
    """Hash of the key → hash of the row. The one that changed longest ago is the first."""
    changed: set[str] = field(default_factory=set)
    """Keys to be written down, those that are forgotten too."""
    forgotten: int = 0
    """Keys since the last `dump`."""

    def differs(self, key: str, row: str) -> bool:
        """Is this row another one than the last of its key? It is the last one from now on."""
        if self.of.get(key) == row:
            return False
        self.of.pop(key, None)
        self.of[key] = row
        self.changed.add(key)
        if len(self.of) > KEYS_MAX:
            oldest = next(iter(self.of))
            del self.of[oldest]
            self.changed.add(oldest)
            self.forgotten += 1
        return True

    def dump(self) -> dict[str, bytes | None]:
        """What changed since the last call: key → row; None where it is forgotten."""
        found = {key: self.of[key].encode() if key in self.of else None for key in self.changed}
        self.changed.clear()
        self.forgotten = 0
        return found


class ChangeStates(States):
    """The last rows of all queries of a lane, by label."""

    def __init__(self, job: ChangeJob) -> None:
        self._job = job
        self.of = {registered.label: LastRows() for registered in job.queries}

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        rows = new_in_order(rows, self._job.source_topics.flat(batch.emitted))
        for registered in self._job.queries:
            mine = rows.filter(pc.equal(rows["query"], registered.id))
            yield from batch.meter.of(registered.label, self._outputs_of(registered, mine, batch))

    def _outputs_of(
        self, registered: Registered, rows: pa.Table, batch: emit.Batch
    ) -> Iterator[emit.Output]:
        label, last = registered.label, self.of[registered.label]
        yield from rows_of(registered, _changed(registered, rows, last), batch.revision)
        if last.forgotten:
            batch.lacks_before[label] = batch.top or 0
        for key, value in last.dump().items():
            name = f"{self._job.state_place}|{label}|{key}"
            yield emit.Output(topics.WINDOWS, name.encode(), value)

    def whole(self, label: str, revision: int) -> dict[str, bytes]:
        return {key: row.encode() for key, row in self.of[label].of.items()}


def _changed(registered: Registered, rows: pa.Table, last: LastRows) -> Iterator[ResultRow]:
    """The rows that differ from the one before."""
    names = [output.name for output in registered.query.compared]
    is_whole = len(names) == len(registered.query.outputs)
    for row, of in zip(result_rows(rows), rows["of"].to_pylist(), strict=True):
        values = row[2].encode()
        if not is_whole:
            found = orjson.loads(values)
            values = orjson.dumps([found[name] for name in names])
        if last.differs(_hash(of.encode()), _hash(values)):
            yield row


def _hash(text: bytes) -> str:
    return blake2b(text, digest_size=HASH_BYTES).hexdigest()


def _row(registered: Registered) -> Column:
    of = [column(Field(name), F.col).alias(name) for name in registered.query.on_change]
    row = F.struct(*result_columns(registered), *place_columns(), json_of(of).alias("of"))
    return passing(registered.query, row)
