"""Minute summaries: per stream, field and minute what can be merged later: count, sum, min, max, HLL, KLL, frequent items.

They are kept on `ew.sketches` (compacted; key stream|field|minute) and in the lake (lake.py). "Distinct devices last week" or "p99 since
Tuesday" is then a merge of kept sketches. Text and boolean fields have no KLL values and null sum, min, max. Value on `ew.sketches`:

    {"stream":…,"field":…,"minute":1790000040000,"readings":…,"count":…,"sum":…,"min":…,"max":…,"hll":base64,"kll":base64,"top":base64,
     "revision":…}

The sketches are Apache DataSketches: HLL of 2^14 buckets over texts, KLL of doubles with k 200, frequent strings.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis import emit, late, partials
from edgewake.cloud.analysis.clock_correction import correct
from edgewake.cloud.analysis.columns import as_text
from edgewake.cloud.analysis.decode import decode, readings
from edgewake.cloud.analysis.lane_kind import LaneKind
from edgewake.cloud.analysis.pipeline import with_event_time
from edgewake.cloud.analysis.query_plan import Registered
from edgewake.protocol import topics
from edgewake.protocol.stream import FieldType

MINUTE_MS: Final = 60_000
LATENESS_MS: Final = 600_000
"""Readings that come more than 10 minutes after their minute's end are not summarised; their sketches are no longer in the state."""
FIELDS_MAX: Final = 32
"""Fields of a stream that are summarised, the first that the catalogue knew: each costs as much as a query."""
STREAMS_MAX: Final = 16
"""Streams that are summarised: each is a Spark query with half a dozen threads, and any device may name a new stream."""

_SKETCHES: Final = ("hll", "kll", "top")


def summarised(streams: Mapping[str, Mapping[str, FieldType]], with_state: Container[str]) -> dict[str, tuple[tuple[str, FieldType], ...]]:
    """Stream → the fields that are summarised, sorted; `streams`: the catalogue in its order.

    At most STREAMS_MAX: those that have a state (`with_state`), then by name, so that a new stream pushes none out.
    """
    chosen = sorted((name for name, fields in streams.items() if fields), key=lambda name: (name not in with_state, name))[:STREAMS_MAX]
    return {name: tuple(sorted(list(streams[name].items())[:FIELDS_MAX])) for name in chosen}


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """The minute summaries of one stream."""

    stream: str
    fields: tuple[tuple[str, FieldType], ...]
    keep: Callable[[str, pa.Table, int], None]
    """Puts (stream, rows, revision) into the lake; the same revision again replaces what it wrote before."""
    kind: LaneKind = LaneKind.SUMMARY
    queries: tuple[Registered, ...] = ()

    def graph(self, records: DataFrame, partitions: int = 1) -> DataFrame:
        """One row for each field and minute that changed: field, minute, readings, count, sum, min, max, hll, kll, top."""
        fields = dict(self.fields)
        frames = with_event_time(late.observe(correct(decode(records, fields)), partitions))
        each = readings(frames, fields, ())
        values = each.select("t", F.explode(F.array(*[_value(name, kind) for name, kind in fields.items()])).alias("value"))
        minute = F.col("t") - F.pmod("t", F.lit(MINUTE_MS).cast("bigint"))
        expires = F.timestamp_millis(minute + MINUTE_MS + LATENESS_MS).alias("expires", metadata={"spark.watermarkDelayMs": 0})
        rows = values.where(F.col("value.text").isNotNull()).select(expires, minute.alias("minute"), "value.*")
        summed = rows.groupBy("expires", "field", "minute").agg(
            F.count(F.lit(1)).alias("readings"),
            F.count("x").alias("count"),
            F.sum("x").alias("sum"),
            F.min("x").alias("min"),
            F.max("x").alias("max"),
            *partials.sketch_columns("text", "x", "text"),
        )
        return summed.select("field", "minute", "readings", "count", "sum", "min", "max", "hll", "kll", F.col("top.sketch").alias("top"))

    def outputs(self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken) -> Iterator[emit.Output]:  # noqa: ARG002  (no query, so none is broken)
        """The records of `ew.sketches`."""
        for row in rows.to_pylist():
            yield self._output(row, batch.revision)

    def committed(self, rows: pa.Table, revision: int) -> None:
        """The same rows for the lake: only what Kafka has, so that a driver that was fenced leaves nothing there."""
        if rows.num_rows:
            self.keep(self.stream, rows, revision)

    def _output(self, row: dict[str, Any], revision: int) -> emit.Output:
        key = f"{self.stream}|{row['field']}|{row['minute']}"
        sketches = {name: base64.b64encode(row[name]).decode() for name in _SKETCHES}
        numbers = {name: value for name, value in row.items() if name not in _SKETCHES}
        return emit.Output(
            topics.SKETCHES, key.encode(), orjson.dumps({"stream": self.stream, **numbers, **sketches, "revision": revision})
        )


def _value(name: str, kind: FieldType) -> Column:
    value = F.col(name)
    number = value if kind is FieldType.NUMBER else F.lit(None)
    return F.struct(F.lit(name).alias("field"), number.cast("double").alias("x"), as_text(value, kind).alias("text"))
