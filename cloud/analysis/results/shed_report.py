"""Emits what was left out, by query and window, on the stream `shed_readings`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from edgewake.cloud.analysis.plan.tags import SHED_PART
from edgewake.cloud.analysis.results.emit import Batch, Output, closed, own_reading
from edgewake.cloud.queries.query import Registered
from edgewake.protocol import topics


class LeftOut(NamedTuple):
    """Readings that were left out of a window until now, of all its groups."""

    start: int
    end: int
    readings: int


def left_out(rows: pa.Table, registered: Registered, batch: Batch) -> list[LeftOut]:
    """The windows that changed in the batch.

    `rows`: partials.estimate, of the whole lane.
    """
    mine = rows.filter(
        pc.and_(pc.equal(rows["query"], registered.id), pc.equal(rows["part"], SHED_PART))
    )
    before = closed(registered.query, batch.top_before)
    columns = zip(
        *[mine[name].to_pylist() for name in ("window_start", "window_end", "readings")],
        strict=True,
    )
    return sorted(LeftOut(*one) for one in columns if before is None or one[1] > before)


def by_query(
    rows: pa.Table, queries: Sequence[Registered], batch: Batch
) -> Mapping[str, Mapping[int, int]]:
    """Query (label) → window's start → readings left out until now."""
    return {
        one.label: {found.start: found.readings for found in left_out(rows, one, batch)}
        for one in queries
    }


def outputs(rows: pa.Table, queries: Sequence[Registered], batch: Batch) -> Iterator[Output]:
    """Emit a record of `shed_readings` for each query and window that changed.

    The latest one of a window is the truth.
    """
    now_ms = batch.top or 0
    for registered in queries:
        for found in left_out(rows, registered, batch):
            fields: dict[str, str | int | None] = {
                "shed_query": registered.query.name,
                "shed_stream": registered.query.stream,
                "window_begins": found.start,
                "window_ends": found.end,
                "readings": found.readings,
            }
            yield own_reading(topics.SHED, registered.query, now_ms, fields)
