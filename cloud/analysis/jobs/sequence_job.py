"""Queries with sessions and windows by count: Spark decodes, filters and computes their values;
what is open is folded in the driver.

The lane's plan has no state. What is open stands on `ew.windows`, written in the transaction that
holds the batch's results and the lane's record: a batch that is computed again finds its offsets in
the record and changes nothing. All readings of such queries pass through the driver, in the order
of the log.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.folds import patterns, sequences
from edgewake.cloud.analysis.folds.open_keys import OpenKeys
from edgewake.cloud.analysis.folds.placed import PLACE, item
from edgewake.cloud.analysis.folds.sequences import Changed, KeyState, Open
from edgewake.cloud.analysis.folds.slots import At, Distinct, Ends, Slot
from edgewake.cloud.analysis.plan import decode as decoded
from edgewake.cloud.analysis.plan import late
from edgewake.cloud.analysis.plan.clock_correction import correct
from edgewake.cloud.analysis.plan.columns import column
from edgewake.cloud.analysis.plan.combined_records import numbered
from edgewake.cloud.analysis.plan.combined_topics import Sources
from edgewake.cloud.analysis.plan.decode import decode, readings
from edgewake.cloud.analysis.plan.tags import (
    extreme_of,
    key_json,
    substituted,
    text_of,
    variants,
    where_of,
)
from edgewake.cloud.analysis.results import emit, finish
from edgewake.cloud.analysis.results.emitted_rows import Told
from edgewake.cloud.queries.expressions import substitute
from edgewake.cloud.queries.lane_kind import LaneKind
from edgewake.cloud.queries.query import NUMBERS_PER_TAG, Registered
from edgewake.cloud.queries.windows import Rule, Window
from edgewake.protocol import result, topics
from edgewake.protocol.field_type import FieldType


@dataclass
class States:
    """Of all queries of a lane: label → group (JSON) → what is open.

    The group touched longest ago is the first.
    """

    of: dict[str, dict[str, KeyState]] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    """Keys on `ew.windows` that hold nothing any more; removed with the next batch."""


def restored(
    queries: Sequence[Registered], rows: Mapping[str, bytes], heard: Container[str]
) -> States:
    """The states that these rows of `ew.windows` hold (state_parts.joined).

    `heard`: queries (label) that the lane had in that batch. Another one was paused meanwhile: it
    goes on with what it had open, but for absences that it was waiting for, since it did not hear
    who was there.
    """
    found = States({registered.label: {} for registered in queries})
    deaf = {
        one.label
        for one in queries
        if one.query.window.rule is Rule.ABSENCE and one.label not in heard
    }
    for key, value in rows.items():
        _, label, group = key.split("|", 2)
        if label not in found.of:  # paused, or failed
            continue
        state = sequences.load(orjson.loads(value), len(value))
        if label in deaf and not patterns.is_told(state):
            found.gone.append(key)
        else:
            found.of[label][group] = state
    return found


def has_absences(states: States, queries: Sequence[Registered], top: int | None) -> bool:
    """Would any be told with event time at `top`? Looks at every key of queries with absences."""
    for registered in queries:
        query = registered.query
        passed = None if top is None else top - query.lateness_ms
        if any(
            patterns.is_absent(state, query.window, passed)
            for state in states.of[registered.label].values()
        ):
            return True
    return False


@dataclass(frozen=True, slots=True)
class SequenceJob:
    """All queries of one stream with sessions or windows by count (see aggregate_job.Job)."""

    stream: str
    fields: tuple[tuple[str, FieldType], ...]
    queries: tuple[Registered, ...]
    kind: LaneKind = LaneKind.SEQUENCE
    others: tuple[str, ...] = ()
    """See Query."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The streams that it reads."""
        return self.stream, *self.others

    def graph(self, records: DataFrame, partitions: int = 1) -> DataFrame:
        """See Job; out: query (id), partition, offset, number, t, key (JSON), x (values of
        numbers), extremes, and items (texts).
        """
        fields: Mapping[str, FieldType] = dict(self.fields)
        frames = late.observe(correct(decode(numbered(records, self.sources), fields)), partitions)
        each = readings(frames, fields, (), placed=True)
        rows = F.array(*[row for registered in self.queries for row in _rows(registered)])
        return (
            each.select(F.explode(rows).alias("row"))
            .where(F.col("row").isNotNull())
            .select("row.*")
        )

    def outputs(
        self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken
    ) -> Iterator[emit.Output]:
        """See Job: results, states, then watermarks."""
        assert isinstance(batch.states, States)
        yield from without_gone(batch.states)
        rows = new_in_order(
            rows, Sources(tuple(map(topics.stream_topic, self.sources))).flat(batch.emitted)
        )
        for registered in self.queries:
            yield from batch.meter.of(
                registered.label, self._outputs_of(registered, rows, batch.states, batch, broken)
            )
        yield from emit.watermarks(
            [registered for registered in self.queries if registered.label not in broken], batch
        )

    def _outputs_of(
        self,
        registered: Registered,
        rows: pa.Table,
        states: States,
        batch: emit.Batch,
        broken: emit.Broken,
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
        yield from Fold(
            "+".join(self.sources), registered, states.of[registered.label], batch
        ).outputs(values, broken)

    def in_silence(self, batch: emit.Batch, broken: emit.Broken) -> Iterator[emit.Output]:
        """Absences to be told though no reading came.

        `batch.states` changes with it, so the outputs must be written.
        """
        assert isinstance(batch.states, States)
        yield from without_gone(batch.states)
        for registered in self.queries:
            if registered.query.window.rule is Rule.ABSENCE:
                yield from Fold(
                    "+".join(self.sources), registered, batch.states.of[registered.label], batch
                ).outputs((), broken)


def new_in_order(rows: pa.Table, emitted: Mapping[int, int]) -> pa.Table:
    """In the order of the log, without those whose results were emitted: a batch that Spark cuts
    anew may repeat them.
    """
    places = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    is_new = [offset >= emitted.get(partition, 0) for partition, offset in places]
    return rows.filter(pa.array(is_new, pa.bool_())).sort_by(
        [(name, "ascending") for name in PLACE if name in rows.column_names]
    )


def place_columns() -> list[Column]:
    """PLACE, of readings that are `placed`."""
    return [F.col(name).alias(alias) for name, alias in zip(decoded.PLACE, PLACE, strict=True)]


def without_gone(states: States) -> Iterator[emit.Output]:
    """Removes the rows of `gone`, before the same keys may get new ones."""
    for key in states.gone:
        yield emit.Output(topics.WINDOWS, key.encode(), None)
    states.gone.clear()


class Fold:
    """One query's share of a batch."""

    def __init__(
        self, place: str, registered: Registered, states: dict[str, KeyState], batch: emit.Batch
    ) -> None:
        self._place, self._registered, self._states, self._batch = place, registered, states, batch
        self._window = registered.query.window
        self._changed: dict[str, Changed] = {}
        self._new: set[str] = set()
        self._room = OpenKeys(states)

    def outputs(
        self, values: Iterable[tuple[int, str, sequences.Values]], broken: emit.Broken
    ) -> Iterator[emit.Output]:
        """Results and states.

        `values`: time, group (JSON) and numbers of each reading, in the order of the log.
        """
        query = self._registered.query
        before, after = (
            emit.closed(query, self._batch.top_before),
            emit.closed(query, self._batch.top),
        )
        for t, key, x in values:
            if before is None or t > before or not self._window.is_sequence:
                self._add(t, key, x)
        passed = None if self._batch.top is None else self._batch.top - query.lateness_ms
        for key, state in self._states.items() if self._window.rule is Rule.ABSENCE else ():
            if patterns.is_absent(state, self._window, passed):
                patterns.raise_absence(state, self._changed.setdefault(key, Changed()))
        yield from self._withdrawn()
        yield from self._results(broken)
        gone = [
            key
            for key, state in self._states.items()
            if not sequences.close(state, self._window, after)
        ]
        for key in gone:
            del self._states[key]
        texts = {key: self._room.record(key) for key in self._changed if key in self._states}
        if texts:
            self._room.forget_beyond_bytes()
        for key in dict.fromkeys((*self._changed, *gone, *self._room.forgotten)):
            # It came and went within the batch: nothing is written of it.
            if key not in self._states and key in self._new:
                continue
            value = texts[key] if key in self._states else None
            yield emit.Output(
                topics.WINDOWS, f"{self._place}|{self._registered.label}|{key}".encode(), value
            )
        if self._room.lacks_before:
            lacks_before, label = self._batch.lacks_before, self._registered.label
            lacks_before[label] = max(self._room.lacks_before, lacks_before.get(label, 0))

    def _add(self, t: int, key: str, x: sequences.Values) -> None:
        # What was forgotten may be written down.
        if key not in self._states and key not in self._room.forgotten:
            self._new.add(key)
        state = self._states.pop(key, None) or KeyState()
        self._states[key] = state
        changed = self._changed.setdefault(key, Changed())
        if self._window.rule is None:
            sequences.add(state, self._window, t, x, changed)
        else:
            conditions = len(self._registered.query.conditions)
            met = [None if value is None else value == 1 for value in x[:conditions]]
            patterns.add(state, self._window, t, met, x[conditions:], changed)
        self._room.forget_beyond_count()

    def _group(self, key: str, one: Open) -> str:
        """The group columns as JSON; of a window by count with its number."""
        if not self._window.count:
            return key
        return orjson.dumps(
            orjson.loads(key) | {"window_number": one.number}, option=orjson.OPT_SORT_KEYS
        ).decode()

    def _results(self, broken: emit.Broken) -> Iterator[emit.Output]:
        windows = [
            (self._group(key, one), one)
            for key, changed in self._changed.items()
            for one in changed.windows.values()
        ]
        over = {
            (changed.windows[place].start, self._group(key, changed.windows[place]))
            for key, changed in self._changed.items()
            for place in changed.over
        }
        told, batch = self._told(windows), self._batch
        if self._window.is_sequence:
            batch = replace(batch, told={self._registered.label: told})
        table = _table(self._registered, windows)
        for output in emit.each(finish.results(table, [self._registered], (), batch, broken)):
            if not self._window.is_sequence:
                yield output
                continue
            start, group = _place(output.key)
            value = output.value
            if (start, group) in over and value is not None:
                head, _, tail = value.rpartition(b'"final":false')
                value = head + b'"final":true' + tail
            yield output._replace(key=result.result_key(start, 0, group), value=value)
        for group, one in windows:
            one.is_told = self._registered.query.having is None or told.has(
                (one.start, _end(self._window, one), group)
            )

    def _told(self, windows: Sequence[tuple[str, Open]]) -> Told:
        """What readers have of these windows: HAVING withdraws it where it does not pass any
        more.
        """
        found = Told()
        for group, one in windows if self._registered.query.having is not None else ():
            if one.is_told:
                found.tell(
                    (one.start, _end(self._window, one), group), "told", self._batch.revision - 1
                )
        return found

    def _withdrawn(self) -> Iterator[emit.Output]:
        name, revision = self._registered.query.name, self._batch.revision
        for key, changed in self._changed.items():
            for start in sorted(changed.withdrawn):
                columns = {
                    "query": name,
                    "window_start": start,
                    "window_end": start,
                    **orjson.loads(key),
                }
                value = orjson.dumps(
                    columns | {"withdrawn": True, "revision": revision, "final": False}
                )
                yield emit.Output(self._registered.topic, result.result_key(start, 0, key), value)


def _end(window: Window, one: Open) -> int:
    return one.last + (window.gap_ms or 1)


def _place(key: bytes) -> tuple[int, str]:
    start, _, group = key.decode()[1:-1].split(",", 2)
    return int(start), group


def _table(registered: Registered, windows: Sequence[tuple[str, Open]]) -> pa.Table:
    """The windows as partials (partials.aggregate), which is what results are made of."""
    query = registered.query
    numbers, moments, extremes = len(query.numbers), len(query.moments), len(query.extremes)
    rows: list[dict[str, Any]] = []
    for part in range(query.parts):
        for group, one in windows:
            end = _end(query.window, one)
            row = {
                "query": registered.id,
                "part": part,
                "window_start": one.start,
                "window_end": end,
                "key": group,
            }
            row["readings"] = one.readings
            for i, slot in enumerate(
                one.slots[:numbers][part * NUMBERS_PER_TAG : (part + 1) * NUMBERS_PER_TAG]
            ):
                assert isinstance(slot, Slot)
                row |= {
                    f"count_{i}": slot.count,
                    f"sum_{i}": slot.sum if slot.count else None,
                    f"min_{i}": slot.min,
                    f"max_{i}": slot.max,
                }
            for slot in one.slots[numbers : numbers + moments][part : part + 1]:
                assert isinstance(slot, Slot)
                row["variance"] = slot.variance
            for slot in one.slots[numbers + moments : numbers + moments + extremes][
                part : part + 1
            ]:
                assert isinstance(slot, Ends)
                row |= {"most": _value(slot.most), "least": _value(slot.least)}
            for slot in one.slots[numbers + moments + extremes :][part : part + 1]:
                assert isinstance(slot, Distinct)
                row["distinct"] = slot.count
            rows.append(row)
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _value(at: At | None) -> dict[str, Any] | None:
    return None if at is None else {"number": at[1], "text": at[2]}


def _extreme(value: Mapping[str, Any] | None) -> At | tuple[()]:
    return () if value is None else (value["at"], value["number"], value["text"])


_VALUE: Final = pa.struct([("number", pa.float64()), ("text", pa.string())])
_SCHEMA: Final = pa.schema(
    [
        ("query", pa.int64()),
        ("part", pa.int32()),
        ("window_start", pa.int64()),
        ("window_end", pa.int64()),
        ("key", pa.string()),
    ]
    + [
        ("readings", pa.int64()),
        ("variance", pa.float64()),
        ("most", _VALUE),
        ("least", _VALUE),
        ("distinct", pa.int64()),
    ]
    + [
        (f"{name}_{i}", pa.int64() if name == "count" else pa.float64())
        for i in range(NUMBERS_PER_TAG)
        for name in ("count", "sum", "min", "max")
    ]
)


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
