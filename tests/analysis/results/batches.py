"""Rows of a batch, and what becomes of them."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa

from edgewake.cloud.analysis.results import emit, finish
from edgewake.cloud.analysis.results.emit import Batch
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse

T0 = 1_790_000_040_000

SCHEMA = pa.schema(
    [
        ("query", pa.int64()),
        ("part", pa.int32()),
        ("window_start", pa.int64()),
        ("window_end", pa.int64()),
        ("key", pa.string()),
    ]
    + [("readings", pa.int64()), ("distinct", pa.int64()), ("quantiles", pa.list_(pa.float64()))]
    + [("top", pa.list_(pa.struct([("item", pa.string()), ("count", pa.int64())])))]
    + [(f"count_{i}", pa.int64()) for i in range(2)]
    + [(f"{name}_{i}", pa.float64()) for i in range(2) for name in ("sum", "min", "max")]
)

TEXT = (
    "-- name: q\n-- lateness: 30 seconds\nSELECT device, {} FROM s GROUP BY window(event_time, '1 "
    "minute'), device"
)


def registered(select: str) -> Registered:
    return Registered(parse(TEXT.format(select)), 7)


def row(
    query: Registered, *, part: int = 0, start: int = T0, readings: int = 4, **slots: Any
) -> dict[str, Any]:
    empty = {f"{name}_{i}": None for i in range(2) for name in ("sum", "min", "max")} | {
        "count_0": 0,
        "count_1": 0,
    }
    place = {
        "query": query.id,
        "part": part,
        "window_start": start,
        "window_end": start + 60_000,
        "key": '{"device":"d1"}',
    }
    return place | empty | {"readings": readings} | slots


def values(query: Registered, rows: list[dict[str, Any]], **batch: Any) -> list[dict[str, Any]]:
    complete_from = {query.label: batch["complete_from"]} if "complete_from" in batch else {}
    step = Batch(
        revision=3,
        top_before=batch.get("before"),
        top=batch.get("top"),
        complete_from=complete_from,
    )
    return [orjson.loads(output.value or b"") for output in outputs(rows, [query], step)]


def outputs(
    rows: list[dict[str, Any]],
    queries: list[Registered],
    step: Batch,
    broken: emit.Broken | None = None,
) -> list[emit.Output]:
    columns = pa.Table.from_pylist(rows, SCHEMA)
    return list(
        emit.each(
            finish.results(columns, queries, (0.5, 0.9), step, {} if broken is None else broken)
        )
    )
