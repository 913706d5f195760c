"""Turns partials into results: columns of Arrow become JSON texts, a slice at a time.

Pure: no Kafka, no Spark, no clock.

A result's text is made by one template for each query, filled from lists of values, so that no
dictionary is built for a row. What a batch needs beside its Arrow table is SLICE_ROWS rows, however
many it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from math import isfinite
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from edgewake.cloud.analysis.results.emit import Batch, Broken, Output, Outputs, closed, watermark
from edgewake.cloud.analysis.results.emitted_rows import EmittedRows, Place, Ranked
from edgewake.cloud.analysis.results.result_texts import (
    KEY,
    TEXT,
    head_of,
    name_of,
    plain_aggregates,
)
from edgewake.cloud.analysis.results.shed_marks import marks
from edgewake.cloud.queries.query import NUMBERS_PER_TAG, Aggregate, Query, Registered
from edgewake.cloud.queries.terms.evaluate import Evaluated, Row, evaluated
from edgewake.cloud.queries.terms.functions import TIME, Kind
from edgewake.cloud.queries.terms.tree import Field
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.ops import result

SLICE_ROWS: Final = 10_000
NUMBER_DIGITS: Final = 15
"""Digits of a sum or mean that is not a whole number: partials are added in any order, which
changes the 16th."""
WHOLE_MAX: Final = 2.0**53
"""The bound below which whole numbers are exact in a double, so that their sums do not depend on
the order of adding."""
ROUNDED_MAX: Final = 1.79769313486231e308
"""The bound above which readers may not take a double of fewer digits for a number."""
_INCOMPLETE: Final = ',"complete":false'
_PLACE: Final = ("window_start", "window_end", "key")


def results(
    rows: pa.Table,
    queries: Sequence[Registered],
    ranks: Sequence[float],
    batch: Batch,
    broken: Broken,
) -> Iterator[Output | Outputs]:
    """A result for each (query, window, key) that changed and was not final before.

    `rows`: partials.estimate, perhaps with texts (result_texts). A query whose results cannot be
    made is put into `broken`, gets no more of them, and harms no other.
    """
    for registered in queries:
        try:
            yield from _results_of(
                registered, rows.filter(pc.equal(rows["query"], registered.id)), ranks, batch
            )
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            broken[registered.label] = f"{type(error).__name__}: {error}"


def _results_of(
    registered: Registered, rows: pa.Table, ranks: Sequence[float], batch: Batch
) -> Iterator[Output | Outputs]:
    query = registered.query
    before = closed(query, batch.top_before)
    aggregates = plain_aggregates(query)
    if query.shed is not None:  # the rows of what was left out are no results (shed_report)
        rows = rows.filter(pc.greater_equal(rows["part"], 0))
    if before is not None:
        # Spark keeps the state of a window for up to SPARK_STEP_MS longer (event_progress.py), so a
        # reading that came too late still changes rows of closed ones.
        rows = rows.filter(pc.greater(rows["window_end"], before))
    if TEXT in rows.column_names and not rows[TEXT].null_count:
        yield from _with_ends(registered, rows, batch)
        return
    parts = _parts(rows, query)
    emitted_rows = None
    if query.having is not None or query.limit is not None:
        emitted_rows = batch.emitted_rows.setdefault(
            registered.label, EmittedRows(batch.unknown_to.get(registered.label))
        )
        emitted_rows.forget(before)
    mark = _RowWriter(registered, batch, emitted_rows)
    changed: set[tuple[int, int]] = set()
    for at in range(0, parts[0].num_rows, SLICE_ROWS):
        slices = [part.slice(at, SLICE_ROWS) for part in parts]
        if aggregates is not None:
            yield mark.all(
                slices,
                [_column(aggregate, slices, ranks) for aggregate in aggregates],
                _marks(query, slices),
            )
            continue
        for row in _rows(query, slices, ranks):
            if query.limit is None:
                yield from mark.row(row)
            else:
                mark.put(row)
                changed.add((row.start, row.end))
    for window in sorted(changed):
        yield from mark.window(window)


def _with_ends(registered: Registered, rows: pa.Table, batch: Batch) -> Iterator[Outputs]:
    """The records of rows whose keys and texts Spark made (result_texts)."""
    ends = _RowSuffix(
        batch,
        complete_from=batch.complete_from.get(registered.label),
        final_to=watermark(registered.query, batch.top),
    )
    for at in range(0, rows.num_rows, SLICE_ROWS):
        some = rows.slice(at, SLICE_ROWS)
        texts = pc.binary_join_element_wise(
            some[TEXT], *ends.columns(some["window_start"], some["window_end"]), b"}", b""
        )
        yield Outputs(registered.topic, _bytes(some[KEY]), _bytes(texts))


def _bytes(column: pa.ChunkedArray) -> list[bytes]:
    found: list[bytes] = column.to_numpy().tolist()
    return found


class _Row(NamedTuple):
    """A row before it is emitted."""

    start: int
    end: int
    key: str
    passes: bool
    rank: tuple[Any, ...]
    values: Sequence[Any]
    """The values of the outputs, which `%s` formats as JSON."""
    mark: str
    """The text about readings that were left out of it."""


def _rows(query: Query, slices: Sequence[pa.Table], ranks: Sequence[float]) -> Iterator[_Row]:
    by_name = {aggregate.name: aggregate for aggregate in query.aggregates}
    direct = [
        by_name.get(output.expression.name) if isinstance(output.expression, Field) else None
        for output in query.outputs
    ]
    columns = [
        None if aggregate is None else _column(aggregate, slices, ranks) for aggregate in direct
    ]
    places = [slices[0][name].to_pylist() for name in _PLACE]
    names = ("window_start", "window_end", *(key.name for key in query.keys), *by_name)
    at = {name: i for i, name in enumerate(names)}
    made = [
        _computed(evaluated(output.expression, at)) if column is None else _shown(column)
        for output, column in zip(query.outputs, columns, strict=True)
    ]
    having = None if query.having is None else evaluated(query.having, at)
    order = [(evaluated(one.expression, at), one.descending) for one in query.order]
    raw = [_raw(aggregate, slices, ranks) for aggregate in query.aggregates]
    row_marks = _marks(query, slices)
    for i, (start, end, key) in enumerate(zip(*places, strict=True)):
        group = orjson.loads(key)
        row = (start, end, *(group[one.name] for one in query.keys), *(column[i] for column in raw))
        values = [make(i, row) for make in made]
        rank = tuple(
            part
            for compute, descending in order
            for part in _rank(compute(row), descending=descending)
        )
        yield _Row(
            start, end, key, having is None or having(row) is True, rank, values, row_marks[i]
        )


def _marks(query: Query, slices: Sequence[pa.Table]) -> Sequence[str]:
    return [""] * slices[0].num_rows if query.shed is None else marks(query, slices)


def _computed(compute: Evaluated) -> Callable[[int, Row], Any]:
    return lambda _, row: as_json(compute(row))


def _shown(column: Sequence[Any]) -> Callable[[int, Row], Any]:
    return lambda i, _: column[i]


def _rank(value: Any, *, descending: bool) -> tuple[bool, Any]:
    """Sorts as SQL does, except that nulls come last in both directions."""
    if value is None:
        return True, 0
    if isinstance(value, str):
        return False, _Backwards(value) if descending else value
    return False, -value if descending else value


class _Backwards(str):
    """A text that sorts the other way round."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


class _RowWriter:
    """Makes the records of rows and of withdrawals."""

    def __init__(
        self, registered: Registered, batch: Batch, emitted_rows: EmittedRows | None
    ) -> None:
        query = registered.query
        self._query, self._topic, self._emitted_rows, self._revision = (
            query,
            registered.topic,
            emitted_rows,
            batch.revision,
        )
        self._complete_from = batch.complete_from.get(registered.label)
        self._ends = _RowSuffix(
            batch, complete_from=self._complete_from, final_to=watermark(query, batch.top)
        )
        self._values = "".join(f"{name_of(output.name)}%s" for output in query.outputs)

    def all(
        self, slices: Sequence[pa.Table], columns: Sequence[Sequence[Any]], row_marks: Sequence[str]
    ) -> Outputs:
        """The records of a slice whose rows are emitted without change."""
        text, place = self._values, None
        starts, ends, keys = (_to_list(slices[0][name]) for name in _PLACE)
        head = key_head = tail = ""
        made_keys, made = [], []
        values = zip(*columns, strict=True) if columns else repeat((), len(keys))
        for start, end, key, shown, mark in zip(starts, ends, keys, values, row_marks, strict=True):
            if place != (start, end):  # most rows of a batch are of few windows
                place = start, end
                head, key_head, tail = (
                    self._head(start, end),
                    result.key_head(start, end),
                    f"{self._ends(start, end)}}}",
                )
            group = f",{key[1:-1]}" if len(key) > 2 else ""
            made_keys.append(f"{key_head}{key}]".encode())
            made.append(f"{head}{group}{text % shown}{mark}{tail}".encode())
        return Outputs(self._topic, made_keys, made)

    def row(self, row: _Row) -> Iterator[Output]:
        """Yield the record of a changed row, or what takes back one that HAVING refuses by now.

        Nothing where HAVING refuses it and it was not emitted.
        """
        place = row.start, row.end, row.key
        if row.passes:
            if self._emitted_rows is not None:
                self._emitted_rows.mark(place, "told", self._revision)
            yield self._output(place, self._body(row), self._ends(row.start, row.end))
        elif self._emitted_rows is not None and not self._emitted_rows.is_unchanged(
            place, "", self._revision
        ):
            yield self._withdrawn(place)

    def put(self, row: _Row) -> None:
        """Keep a row of a window with LIMIT."""
        assert self._emitted_rows is not None
        self._emitted_rows.rank(
            (row.start, row.end, row.key), Ranked(row.rank, self._body(row)) if row.passes else None
        )

    def window(self, window: tuple[int, int]) -> Iterator[Output]:
        """The changes among the first rows of a window with LIMIT."""
        emitted_rows, limit = self._emitted_rows, self._query.limit
        assert emitted_rows is not None
        assert limit is not None
        first = dict(emitted_rows.first(window, limit))
        end = self._ends(*window)
        if emitted_rows.is_unknown(window[0]) and _INCOMPLETE not in end:
            end += _INCOMPLETE
        for group in emitted_rows.groups(window):
            place = (*window, group)
            if group not in first and not emitted_rows.is_unchanged(place, "", self._revision):
                yield self._withdrawn(place)
        for group, text in first.items():
            place = (*window, group)
            if not emitted_rows.is_unchanged(place, text, self._revision):
                emitted_rows.mark(place, text, self._revision)
                yield self._output(place, text, end)

    def _head(self, start: int, end: int) -> str:
        return f'{head_of(self._query)},"window_start":{start},"window_end":{end}'

    def _body(self, row: _Row) -> str:
        group = f",{row.key[1:-1]}" if len(row.key) > 2 else ""
        return (
            f"{self._head(row.start, row.end)}{group}{self._values % tuple(row.values)}{row.mark}"
        )

    def _withdrawn(self, place: Place) -> Output:
        assert self._emitted_rows is not None
        self._emitted_rows.mark(place, "", self._revision)
        start, end, key = place
        group = f",{key[1:-1]}" if len(key) > 2 else ""
        return self._output(
            place, f'{self._head(start, end)}{group},"withdrawn":true', self._ends(start, end)
        )

    def _output(self, place: Place, body: str, end: str) -> Output:
        return Output(self._topic, result.result_key(*place), f"{body}{end}}}".encode())


def _parts(rows: pa.Table, query: Query) -> list[pa.Table]:
    """The rows of each part of the tag, in the same order."""
    if query.parts == 1:
        return [rows]
    parts = [
        rows.filter(pc.equal(rows["part"], part)).sort_by([(name, "ascending") for name in _PLACE])
        for part in range(query.parts)
    ]
    for part in parts[1:]:
        if part.select(_PLACE) != parts[0].select(_PLACE):
            raise ValueError("the parts of its state are of different lengths")
    return parts


class _RowSuffix:
    """The end of a row's text: revision, finality, and whether it may lack readings."""

    def __init__(self, batch: Batch, *, complete_from: int | None, final_to: int | None) -> None:
        self._complete_from, self._final_to = complete_from, final_to
        self._open = f',"revision":{batch.revision},"final":false'
        self._final = f',"revision":{batch.revision},"final":true'

    def __call__(self, start: int, end: int) -> str:
        text = self._final if self._final_to is not None and end <= self._final_to else self._open
        return (
            text + _INCOMPLETE
            if self._complete_from is not None and start < self._complete_from
            else text
        )

    def columns(self, starts: pa.ChunkedArray, ends: pa.ChunkedArray) -> list[Any]:
        """The texts of many rows, each in two pieces of bytes."""
        one, other = self._open.encode(), self._final.encode()
        made = [
            one
            if self._final_to is None
            else pc.if_else(pc.less_equal(ends, self._final_to), other, one)
        ]
        if self._complete_from is not None:
            made.append(pc.if_else(pc.less(starts, self._complete_from), _INCOMPLETE.encode(), b""))
        return made


def _column(aggregate: Aggregate, parts: Sequence[pa.Table], ranks: Sequence[float]) -> list[Any]:
    """The aggregate's values as `%s` makes JSON of them."""
    function = aggregate.function
    if function == "count_all":
        return _texts(parts[0]["readings"])
    if function in _OF_A_PART:
        return _part_column(aggregate, parts[aggregate.slot], ranks)
    part, i = divmod(aggregate.slot, NUMBERS_PER_TAG)
    rows = parts[part]
    if function == "avg":
        counts = rows[f"count_{i}"]
        return _sums(pc.divide(rows[f"sum_{i}"], pc.if_else(pc.equal(counts, 0), None, counts)))
    column = rows[f"{function}_{i}"]
    return _sums(column) if function == "sum" else _texts(column)


_OF_A_PART: Final = (
    "distinct", "quantile", "quantiles", "top_k", "mode", "variance", "most", "least",
)  # fmt: skip
"""The functions of which a part has one."""


def _part_column(aggregate: Aggregate, rows: pa.Table, ranks: Sequence[float]) -> list[Any]:
    function = aggregate.function
    if function == "distinct":
        return _texts(rows["distinct"])
    if function == "variance":
        return _sums(rows["variance"])
    if function in ("most", "least"):
        return [as_json(_extreme(value, aggregate.kind)) for value in rows[function].to_pylist()]
    if function in ("quantile", "quantiles"):
        at = [ranks.index(rank) for rank in aggregate.parameters]
        found = [
            [None] * len(at) if each is None else [each[i] for i in at]
            for each in rows["quantiles"].to_pylist()
        ]
        return [as_json(each[0] if function == "quantile" else each) for each in found]
    if function == "mode":
        return [as_json(most_frequent(items, aggregate.kind)) for items in rows["top"].to_pylist()]
    k = int(aggregate.parameters[0])
    return [
        orjson.dumps(top_items(items, k, aggregate.kind)).decode()
        for items in rows["top"].to_pylist()
    ]


def _extreme(value: dict[str, Any] | None, kind: Kind) -> str | float | bool | None:
    if value is None:
        return None
    if kind is FieldType.BOOLEAN:
        return bool(value["text"] == "true")
    found: str | float = value["text"] if kind is FieldType.STRING else value["number"]
    return int(found) if kind is TIME else found


def _raw(aggregate: Aggregate, parts: Sequence[pa.Table], ranks: Sequence[float]) -> list[Any]:
    """The aggregate's values as an expression takes them: those that a result would show."""
    return [_value_of(text) for text in _column(aggregate, parts, ranks)]


def _value_of(text: Any) -> Any:
    """A column holds JSON texts, or plain numbers."""
    return orjson.loads(text) if isinstance(text, str) else text


def as_json(value: Any) -> str:
    """A value as JSON; a number computed from sums is rounded to their digits."""
    if isinstance(value, float):
        return rounded(value) if isfinite(value) else "null"
    return orjson.dumps(value).decode()


def _texts(values: pa.ChunkedArray) -> list[Any]:
    found = _to_list(_finite(values))
    return ["null" if number is None else number for number in found] if None in found else found


def _sums(values: pa.ChunkedArray) -> list[str]:
    return ["null" if number is None else rounded(number) for number in _to_list(_finite(values))]


def _finite(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A number as JSON, which has no NaN and no infinity."""
    return (
        pc.if_else(pc.is_finite(values), values, None)
        if pa.types.is_floating(values.type)
        else values
    )


def _to_list(values: pa.ChunkedArray) -> list[Any]:
    """The column as a Python list, several times as fast where it has only numbers."""
    is_number = pa.types.is_floating(values.type) or pa.types.is_integer(values.type)
    found: list[Any] = (
        values.to_numpy().tolist() if is_number and not values.null_count else values.to_pylist()
    )
    return found


def rounded(number: float) -> str:
    """Write a sum as text without the digits that depend on the order of adding.

    A whole number keeps all of its own.
    """
    size = abs(number)
    keeps_all = number.is_integer() if size < WHOLE_MAX else size > ROUNDED_MAX
    return repr(number) if keeps_all else f"{number:.{NUMBER_DIGITS}g}"


def top_items(items: Iterable[dict[str, Any]], k: int, kind: Kind) -> list[dict[str, Any]]:
    """List the k most frequent items, [{"item":…,"count":…}], the most frequent first.

    Equal ones are ordered by their text.
    """
    known = sorted(
        (item for item in items if item["item"] is not None),
        key=lambda item: (-item["count"], item["item"]),
    )
    return [{"item": _item(item["item"], kind), "count": item["count"]} for item in known[:k]]


def most_frequent(items: Iterable[dict[str, Any]], kind: Kind) -> str | float | bool | None:
    """The most frequent item, the smallest of equally frequent ones; None where none is known."""
    known = [item for item in items if item["item"] is not None]
    most = max((item["count"] for item in known), default=0)
    return min((_item(item["item"], kind) for item in known if item["count"] == most), default=None)


def _item(text: str, kind: Kind) -> str | float | bool:
    if kind in (FieldType.NUMBER, TIME):
        number: float = orjson.loads(text)
        return number
    return text == "true" if kind is FieldType.BOOLEAN else text
