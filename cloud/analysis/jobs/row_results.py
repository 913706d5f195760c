"""Results that are one reading each: final as soon as they are emitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import pyarrow as pa

from edgewake.cloud.analysis.folds.enriched import CompletedReading
from edgewake.cloud.analysis.results import emit, finish
from edgewake.cloud.queries.query import Registered
from edgewake.protocol.ops import result

ResultRow: TypeAlias = tuple[int, str, str]
"""A row that Spark made of a reading (placed_rows.result_columns): its event time (ms), its key and
its values, as JSON objects."""


def result_rows(rows: pa.Table) -> Iterable[ResultRow]:
    """The rows of a batch."""
    return zip(*[rows[name].to_pylist() for name in ("t", "key", "values")], strict=True)


def rows_of(
    registered: Registered, rows: Iterable[ResultRow], revision: int
) -> Iterator[emit.Output]:
    """The records of rows whose values Spark made."""
    end = f',"revision":{revision},"final":true}}'
    for t, key, values in rows:
        head = f'{{"query":"{registered.query.name}","window_start":{t},"window_end":{t + 1},'
        others = f",{values[1:-1]}" if len(values) > 2 else ""
        body = f"{head}{key[1:-1]}{others}{end}"
        yield emit.Output(registered.topic, result.result_key(t, t + 1, key), body.encode())


def rows_told(
    registered: Registered, joined: Iterable[CompletedReading], revision: int
) -> Iterator[emit.Output]:
    """The records of rows that are final as soon as they are emitted."""
    for t, group, _, values, is_complete in joined:
        others = "".join(f',"{name}":{finish.as_json(value)}' for name, value in values.items())
        head = (
            f'{{"query":"{registered.query.name}","window_start":{t},"window_end":{t + 1},'
            f"{group[1:-1]}"
        )
        end = "" if is_complete else ',"complete":false'
        body = f'{head}{others},"revision":{revision},"final":true{end}}}'
        yield emit.Output(registered.topic, result.result_key(t, t + 1, group), body.encode())
