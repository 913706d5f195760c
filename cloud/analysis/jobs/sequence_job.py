"""Queries with sessions and windows by count.

Spark decodes, filters and computes their values; the driver folds the windows that are open.

The lane's plan has no state. What is open stands on `ew.windows`, written in the transaction that
holds the batch's results and the lane's record: a batch that is computed again finds its offsets in
the record and changes nothing. All readings of such queries pass through the driver, in the order
of the log.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.folds import patterns
from edgewake.cloud.analysis.folds.placed import item
from edgewake.cloud.analysis.folds.slots import At
from edgewake.cloud.analysis.jobs.job import NO_DIALS, Dials, Job, States
from edgewake.cloud.analysis.jobs.placed_rows import exploded, new_in_order, place_columns
from edgewake.cloud.analysis.jobs.window_fold import Fold, OpenWindows, dumped, loaded
from edgewake.cloud.analysis.plan.columns import column
from edgewake.cloud.analysis.plan.tags import (
    extreme_of,
    key_json,
    substituted,
    text_of,
    variants,
    where_of,
)
from edgewake.cloud.analysis.results import emit
from edgewake.cloud.analysis.results.lane_record import LaneRecord
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.terms.tree import substitute
from edgewake.cloud.queries.terms.windows import Rule
from edgewake.protocol import topics


class SequenceJob(Job):
    """All queries of the same streams with sessions, windows by count or patterns."""

    is_driven = True

    def graph(self, records: DataFrame, partitions: int = 1, dials: Dials = NO_DIALS) -> DataFrame:
        """See Job.

        The rows' columns: query (id), partition, offset, number, t, key (JSON), x (values of
        numbers), extremes, and items (texts).
        """
        rows = (row for registered in self.queries for row in _rows(registered))
        return exploded(self, records, partitions, rows)

    def new_states(self) -> SequenceStates:
        return SequenceStates(self)

    def restored(self, rows: Mapping[str, bytes], record: LaneRecord) -> SequenceStates:
        """See Job. A query that was not in the lane's last batch was paused and keeps its windows.

        The absences that it was waiting for are dropped, since it did not see the readings in
        between.
        """
        found = self.new_states()
        deaf = _deaf(self, record.joined_at_offsets)
        for key, value in rows.items():
            _, label, group = key.split("|", 2)
            if label not in found.of:  # paused, or failed
                continue
            state = loaded(value)
            if label in deaf and not patterns.is_emitted(state):
                found.gone.append(key)
            else:
                found.of[label][group] = state
        return found


class SequenceStates(States):
    """The windows that are open."""

    def __init__(self, job: SequenceJob) -> None:
        self._job = job
        self.of: dict[str, OpenWindows] = {registered.label: {} for registered in job.queries}
        """Query (label) → its windows."""
        self.gone: list[str] = []
        """Keys on `ew.windows` that hold nothing any more; removed with the next batch."""

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        yield from self._without_gone()
        rows = new_in_order(rows, self._job.source_topics.flat(batch.emitted))
        for registered in self._job.queries:
            yield from batch.meter.of(
                registered.label, self._outputs_of(registered, rows, batch, broken)
            )
        yield from emit.watermarks(
            [registered for registered in self._job.queries if registered.label not in broken],
            batch,
        )

    def is_due(self, top: int | None) -> bool:
        """Would any absence be emitted? Looks at every key of queries with absences."""
        for registered in self._job.queries:
            query = registered.query
            passed = None if top is None else top - query.lateness_ms
            if any(
                patterns.is_absent(state, query.window, passed)
                for state in self.of[registered.label].values()
            ):
                return True
        return False

    def in_silence(self, batch: emit.Batch, broken: emit.Broken) -> Iterator[emit.Output]:
        """Emit absences that are due although no reading came."""
        yield from self._without_gone()
        for registered in self._job.queries:
            if registered.query.window.rule is Rule.ABSENCE:
                yield from self._fold(registered, batch).outputs((), broken)

    def whole(self, label: str, revision: int) -> dict[str, bytes]:
        return dumped(self.of[label])

    def _outputs_of(
        self, registered: Registered, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        mine = rows.filter(pc.equal(rows["query"], registered.id))
        columns = zip(
            *[mine[name].to_pylist() for name in ("t", "key", "x", "extremes", "items")],
            strict=True,
        )
        values = (
            (t, key, [*x, *map(_extreme, extremes), *map(item, items)])
            for t, key, x, extremes, items in columns
        )
        yield from self._fold(registered, batch).outputs(values, broken)

    def _fold(self, registered: Registered, batch: emit.Batch) -> Fold:
        return Fold(self._job.state_place, registered, self.of[registered.label], batch)

    def _without_gone(self) -> Iterator[emit.Output]:
        """Removes the rows of `gone`, before the same keys may get new ones."""
        for key in self.gone:
            yield emit.Output(topics.WINDOWS, key.encode(), None)
        self.gone.clear()


def _deaf(job: Job, heard: Container[str]) -> set[str]:
    """The queries (label) with absences that are not among those whose readings were heard."""
    return {
        one.label
        for one in job.queries
        if one.query.window.rule is Rule.ABSENCE and one.label not in heard
    }


def _extreme(value: Mapping[str, Any] | None) -> At | tuple[()]:
    return () if value is None else (value["at"], value["number"], value["text"])


def _rows(registered: Registered) -> Iterator[Column]:
    query = registered.query
    for values in variants(query):
        keys = tuple((key.name, substitute(key.expression, values)) for key in query.keys)
        expressions = (*query.conditions, *query.numbers, *query.moments)
        numbers = [
            column(substitute(number, values), F.col).cast("double") for number in expressions
        ]
        items = [text_of((substitute(one, values), kind)) for one, kind in query.distinct]
        extremes = [extreme_of(substituted(one, values)) for one in query.extremes]
        row = F.struct(
            F.lit(registered.id).cast("bigint").alias("query"),
            *place_columns(),
            F.col(query.window.time).alias("t"),
            key_json(keys, F.col).alias("key"),
            F.array(*numbers).cast("array<double>").alias("x"),
            F.array(*extremes)
            .cast("array<struct<at: double, number: double, text: string>>")
            .alias("extremes"),
            F.array(*items).cast("array<string>").alias("items"),
        )
        where = where_of(query, values)
        yield row if where is None else F.when(column(where, F.col), row)
