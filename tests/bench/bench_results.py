"""How fast a batch's changed rows become the records of its transaction, and what memory that
takes: no Spark and no Kafka.

`python -m tests.bench.bench_results [--runs 3] [--rows 200000] [--json FILE]`. A row is a window of
one device with five aggregates. The records are counted and dropped, as a producer drops them when
Kafka has them.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from edgewake.cloud.analysis.results import emit, finish
from edgewake.cloud.queries.query import Registered
from edgewake.cloud.queries.query_file import parse
from tests.bench.figures import Found, run

QUERY = (
    "-- name: q\nSELECT device, count(speed) AS n, avg(speed) AS mean, sum(speed) AS total, "
    "min(speed) AS low, max(speed) AS high FROM s"
    " GROUP BY window(event_time, '1 minute'), device"
)
START = 1_790_000_040_000


def measure(_folder: Path, runs: int, rows: int) -> Found:
    """Make the rows once, finish them as often as asked."""
    found: Found = defaultdict(list)
    registered = Registered(parse(QUERY), 1)
    table = _table(registered.id, rows)
    batch = emit.Batch(revision=1, top_before=None, top=START)
    _count(registered, table.slice(0, 1000), batch)
    for _ in range(runs):
        before, began = _peak_bytes(), time.process_time()
        assert _count(registered, table, batch) == rows
        found["results: rows finished", "rows/s", 150_000].append(
            rows / (time.process_time() - began)
        )
        found["results: memory beside the Arrow table, at most", "B/row", None].append(
            (_peak_bytes() - before) / rows
        )
    return found


def _count(registered: Registered, table: pa.Table, batch: emit.Batch) -> int:
    return sum(1 for _ in emit.each(finish.results(table, [registered], (), batch, {})))


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _table(query: int, rows: int) -> pa.Table:
    """Made within Arrow: lists of Python's would be the peak of the memory."""
    numbers = pa.array(range(rows), pa.int64())
    key = pc.binary_join_element_wise('{"device":"car-', pc.cast(numbers, pa.string()), '"}', "")
    constants = {
        "query": query,
        "part": 0,
        "window_start": START,
        "window_end": START + 60_000,
        "readings": 5,
    }
    columns = {name: pa.repeat(value, rows) for name, value in constants.items()} | {"key": key}
    for i in range(2):
        columns[f"count_{i}"] = pa.repeat(5, rows)
        columns |= {
            f"{name}_{i}": pc.multiply(pc.cast(numbers, pa.float64()), 1.1)
            for name in ("sum", "min", "max")
        }
    return pa.table(columns)


if __name__ == "__main__":
    run(measure, __doc__, sizes={"rows": 200_000})
