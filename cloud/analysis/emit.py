"""From the partials that a micro-batch changed to the records of its transaction. Pure: no Kafka, no Spark, no clock.

results     one row for each (query, window, key) that changed and was not final before (protocol/result.py)
watermarks  up to when every window of a query is final, where that moved past a window's end
late        how many readings came after their window was final
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson

from edgewake.cloud.analysis.query_plan import NUMBERS_PER_TAG, Aggregate, Query, Registered
from edgewake.protocol import result, topics
from edgewake.protocol.stream import FieldType

Row: TypeAlias = Mapping[str, Any]
"""A row of partials.estimate."""
Groups: TypeAlias = dict[tuple[int, int, str], dict[int, Row]]
"""(window_start, window_end, key) → part → row."""
NUMBER_DIGITS: Final = 15
"""Digits of a sum or mean: partials are added in any order, which changes the 16th."""


@dataclass(frozen=True, slots=True)
class Output:
    """A record to produce."""

    topic: str
    key: bytes
    value: bytes
    kind: bytes | None = None
    """Header KIND_HEADER."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What is known of a micro-batch beside its rows."""

    revision: int
    top_before: int | None
    """Latest event time before the batch: decides what is late and what was final."""
    top: int | None
    """Latest event time with the batch."""
    complete_from: Mapping[str, int] = field(default_factory=dict)
    """Query (label) → event time, ms: windows that begin before it may lack readings (lane_record)."""


def watermark(query: Query, top: int | None) -> int | None:
    """Event time in ms up to which every window of the query is final, on the grid of its windows."""
    if top is None:
        return None
    final = top - query.lateness_ms
    return final - final % query.slide_ms


Broken: TypeAlias = dict[str, str]
"""Query (label) → why its results could not be made."""


def results(rows: Iterable[Row], queries: Sequence[Registered], ranks: Sequence[float], batch: Batch) -> tuple[list[Output], Broken]:
    """The results of the batch. A query whose results cannot be made gets none, and harms no other."""
    by_query: dict[int, Groups] = {}
    for row in rows:
        groups = by_query.setdefault(row["query"], {})
        groups.setdefault((row["window_start"], row["window_end"], row["key"]), {})[row["part"]] = row
    outputs: list[Output] = []
    broken: Broken = {}
    for registered in queries:
        try:
            outputs += list(_results_of(registered, by_query.get(registered.id, {}), ranks, batch))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            broken[registered.label] = f"{type(error).__name__}: {error}"
    return outputs, broken


def _results_of(registered: Registered, groups: Groups, ranks: Sequence[float], batch: Batch) -> Iterator[Output]:
    query = registered.query
    before, after = watermark(query, batch.top_before), watermark(query, batch.top)
    for (start, end, key), parts in groups.items():
        if before is not None and end <= before:
            continue
        group = orjson.loads(key)
        value = {"query": query.name, "window_start": start, "window_end": end, **group}
        value |= {aggregate.name: _value(aggregate, parts, ranks) for aggregate in query.aggregates}
        value |= {"revision": batch.revision, "final": after is not None and end <= after}
        if start < batch.complete_from.get(registered.label, start):
            value["complete"] = False
        yield Output(registered.topic, result.result_key(start, end, group), orjson.dumps(value), result.KIND_RESULT)


def watermarks(queries: Sequence[Registered], batch: Batch) -> Iterator[Output]:
    """Announcements of the queries whose windows became final; they follow the results."""
    for registered in queries:
        query = registered.query
        before, after = watermark(query, batch.top_before), watermark(query, batch.top)
        if after is not None and after != before:
            value = result.watermark_value(query.name, after, batch.revision)
            yield Output(registered.topic, result.WATERMARK_KEY, value, result.KIND_WATERMARK)


def late_readings(counts: Iterable[tuple[int, int, int]], queries: Sequence[Registered], batch: Batch) -> Mapping[str, Counter[int]]:
    """Query (label) → end of window → late readings. `counts`: late.late_counts."""
    found: dict[str, Counter[int]] = {}
    for place, end, readings in counts:
        registered = queries[place]
        before = watermark(registered.query, batch.top_before)
        if before is not None and end <= before:
            found.setdefault(registered.label, Counter())[end] += readings
    return found


def late_outputs(found: Mapping[str, Counter[int]], queries: Sequence[Registered], batch: Batch) -> Iterator[Output]:
    """One record for each query and window that readings came too late for."""
    names = {registered.label: registered.query for registered in queries}
    for label, ends in found.items():
        query = names[label]
        for end, readings in sorted(ends.items()):
            value = {"query": query.name, "stream": query.stream, "window_end": end, "readings": readings, "revision": batch.revision}
            yield Output(topics.LATE, query.name.encode(), orjson.dumps(value))


def _value(aggregate: Aggregate, parts: Mapping[int, Row], ranks: Sequence[float]) -> Any:
    function = aggregate.function
    if function == "count_all":
        return parts[0]["readings"]
    if function in ("distinct", "quantile", "top_k"):
        return _sketch_value(aggregate, parts[aggregate.slot], ranks)
    part, i = divmod(aggregate.slot, NUMBERS_PER_TAG)
    row = parts[part]
    if function == "avg":
        count = row[f"count_{i}"]
        return rounded(row[f"sum_{i}"] / count) if count else None
    number = row[f"{function}_{i}"]
    return rounded(number) if function == "sum" else number


def rounded(number: float | None) -> float | None:
    """A sum without the digits that depend on the order of adding."""
    return None if number is None else float(f"{number:.{NUMBER_DIGITS}g}")


def _sketch_value(aggregate: Aggregate, row: Row, ranks: Sequence[float]) -> Any:
    if aggregate.function == "distinct":
        return row["distinct"]
    if aggregate.function == "quantile":
        return None if row["quantiles"] is None else row["quantiles"][ranks.index(aggregate.parameter)]
    return top_items(row["top"], int(aggregate.parameter), aggregate.kind)


def top_items(items: Iterable[Mapping[str, Any]], k: int, kind: FieldType | None) -> list[dict[str, Any]]:
    """The k most frequent items, [{"item":…,"count":…}], most frequent first; equal ones by their text."""
    known = sorted((item for item in items if item["item"] is not None), key=lambda item: (-item["count"], item["item"]))
    return [{"item": _item(item["item"], kind), "count": item["count"]} for item in known[:k]]


def _item(text: str, kind: FieldType | None) -> str | float | bool:
    if kind is FieldType.NUMBER:
        number: float = orjson.loads(text)
        return number
    return text == "true" if kind is FieldType.BOOLEAN else text
