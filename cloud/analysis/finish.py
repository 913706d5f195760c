"""From partials to results: columns of Arrow become JSON texts, a slice at a time. Pure: no Kafka, no Spark, no clock.

A result's text is made by one template for each query, filled from lists of values, so that no dictionary stands for a row. What a batch
needs beside its Arrow table is SLICE_ROWS rows, however many it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from edgewake.cloud.analysis.emit import Batch, Broken, Output, closed, watermark
from edgewake.cloud.analysis.query_plan import NUMBERS_PER_TAG, Aggregate, Query, Registered
from edgewake.protocol import result
from edgewake.protocol.stream import FieldType

SLICE_ROWS: Final = 10_000
NUMBER_DIGITS: Final = 15
"""Digits of a sum or mean that is no whole number: partials are added in any order, which changes the 16th."""
WHOLE_MAX: Final = 2.0**53
"""Whole numbers below it are exact in a double, so their sums do not depend on the order of adding."""
_PLACE: Final = ("window_start", "window_end", "key")


def results(rows: pa.Table, queries: Sequence[Registered], ranks: Sequence[float], batch: Batch, broken: Broken) -> Iterator[Output]:
    """A result for each (query, window, key) that changed and was not final before. `rows`: partials.estimate.

    A query whose results cannot be made is put into `broken`, gets no more of them, and harms no other.
    """
    for registered in queries:
        try:
            yield from _results_of(registered, rows.filter(pc.equal(rows["query"], registered.id)), ranks, batch)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            broken[registered.label] = f"{type(error).__name__}: {error}"


def _results_of(registered: Registered, rows: pa.Table, ranks: Sequence[float], batch: Batch) -> Iterator[Output]:
    query = registered.query
    before, after = closed(query, batch.top_before), watermark(query, batch.top)
    if before is not None:
        rows = rows.filter(pc.greater(rows["window_end"], before))
    parts = _parts(rows, query)
    ends = _ends(batch, complete_from=batch.complete_from.get(registered.label), final_to=after)
    text = _template(query)
    for at in range(0, parts[0].num_rows, SLICE_ROWS):
        slices = [part.slice(at, SLICE_ROWS) for part in parts]
        columns = [_column(aggregate, slices, ranks) for aggregate in query.aggregates]
        places = [slices[0][name].to_pylist() for name in _PLACE]
        for start, end, key, *values in zip(*places, *columns, strict=True):
            value = text % (start, end, "," + key[1:-1] if len(key) > 2 else "", *values, ends(start, end))
            yield Output(registered.topic, result.result_key(start, end, key), value.encode(), result.KIND_HEADERS)


def _parts(rows: pa.Table, query: Query) -> list[pa.Table]:
    """The rows of each part of the tag, in the same order."""
    if query.parts == 1:
        return [rows]
    parts = [rows.filter(pc.equal(rows["part"], part)).sort_by([(name, "ascending") for name in _PLACE]) for part in range(query.parts)]
    for part in parts[1:]:
        if part.select(_PLACE) != parts[0].select(_PLACE):
            raise ValueError("the parts of its state do not belong together")
    return parts


def _template(query: Query) -> str:
    values = "".join(f',"{aggregate.name}":%s' for aggregate in query.aggregates)
    return f'{{"query":"{query.name}","window_start":%d,"window_end":%d%s{values}%s}}'


class _ends:  # noqa: N801  (a function with its constants made once for each query)
    """The end of a row's text: revision, finality, and whether it may lack readings."""

    def __init__(self, batch: Batch, *, complete_from: int | None, final_to: int | None) -> None:
        self._complete_from, self._final_to = complete_from, final_to
        self._open = f',"revision":{batch.revision},"final":false'
        self._final = f',"revision":{batch.revision},"final":true'

    def __call__(self, start: int, end: int) -> str:
        text = self._final if self._final_to is not None and end <= self._final_to else self._open
        return text + ',"complete":false' if self._complete_from is not None and start < self._complete_from else text


def _column(aggregate: Aggregate, parts: Sequence[pa.Table], ranks: Sequence[float]) -> list[Any]:
    """The aggregate's values as `%s` makes JSON of them."""
    function = aggregate.function
    if function == "count_all":
        return _texts(parts[0]["readings"])
    if function in ("distinct", "quantile", "top_k"):
        return _sketch_column(aggregate, parts[aggregate.slot], ranks)
    part, i = divmod(aggregate.slot, NUMBERS_PER_TAG)
    rows = parts[part]
    if function == "avg":
        counts = rows[f"count_{i}"]
        return _sums(pc.divide(rows[f"sum_{i}"], pc.if_else(pc.equal(counts, 0), None, counts)))
    column = rows[f"{function}_{i}"]
    return _sums(column) if function == "sum" else _texts(column)


def _sketch_column(aggregate: Aggregate, rows: pa.Table, ranks: Sequence[float]) -> list[Any]:
    if aggregate.function == "distinct":
        return _texts(rows["distinct"])
    if aggregate.function == "quantile":
        at = ranks.index(aggregate.parameter)
        return ["null" if each is None else each[at] for each in rows["quantiles"].to_pylist()]
    k = int(aggregate.parameter)
    return [orjson.dumps(top_items(items, k, aggregate.kind)).decode() for items in rows["top"].to_pylist()]


def _texts(values: pa.ChunkedArray) -> list[float | str]:
    if pa.types.is_floating(values.type):  # JSON has no NaN and no infinity
        values = pc.if_else(pc.is_finite(values), values, None)
    return ["null" if number is None else number for number in values.to_pylist()]


def _sums(values: pa.ChunkedArray) -> list[float | str]:
    return ["null" if number is None else rounded(number) for number in pc.if_else(pc.is_finite(values), values, None).to_pylist()]


def rounded(number: float) -> str:
    """A sum as text, without the digits that depend on the order of adding; a whole number keeps all of its own."""
    return repr(number) if number.is_integer() and -WHOLE_MAX < number < WHOLE_MAX else f"{number:.{NUMBER_DIGITS}g}"


def top_items(items: Iterable[dict[str, Any]], k: int, kind: FieldType | None) -> list[dict[str, Any]]:
    """The k most frequent items, [{"item":…,"count":…}], most frequent first; equal ones by their text."""
    known = sorted((item for item in items if item["item"] is not None), key=lambda item: (-item["count"], item["item"]))
    return [{"item": _item(item["item"], kind), "count": item["count"]} for item in known[:k]]


def _item(text: str, kind: FieldType | None) -> str | float | bool:
    if kind is FieldType.NUMBER:
        number: float = orjson.loads(text)
        return number
    return text == "true" if kind is FieldType.BOOLEAN else text
