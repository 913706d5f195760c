"""Minute summaries: per stream, field and minute what can be merged later: exact figures and sketches.

They go to `ew.summaries.minute` (edgewake.cloud.summaries, which makes hours, days and answers of them) and to the lake (lake.py). Text and
boolean fields have no KLL and no figures but the count of readings. The sketches are Apache DataSketches: HLL of 2^14 buckets and theta of
2^12 entries over texts, KLL of doubles with k 200, frequent strings; and Spark's own Count-Min of texts, and a sample of readings. Their
columns in the lake: hll, theta, kll, top, count_min, sample (the last two in the bytes of protocol/count_min.py and protocol/sample.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
from edgewake.cloud.summaries import sketches
from edgewake.cloud.summaries.summary import Record, Series, Sketch, Summary, numbers_of
from edgewake.protocol import count_min, sample, sketch, topics
from edgewake.protocol.field_type import FieldType
from edgewake.protocol.sketch import SketchKind

MINUTE_MS: Final = 60_000
LATENESS_MS: Final = 600_000
"""Readings that come more than 10 minutes after their minute's end are not summarised; their sketches are no longer in the state."""
FIELDS_MAX: Final = 32
"""Fields of a stream that are summarised, the first that the catalogue knew: each costs as much as a query."""
STREAMS_MAX: Final = 16
"""Streams that are summarised: each is a Spark query with half a dozen threads, and any device may name a new stream."""

_COUNT_MIN_EPS: Final = 2 / count_min.WIDTH
_COUNT_MIN_CONFIDENCE: Final = 1 - 0.5**count_min.DEPTH
_SEED: Final = 1
"""Of factors in Spark's Count-Min that are used for numbers only; texts are hashed without."""


def summarised(streams: Mapping[str, Mapping[str, FieldType]], with_state: Container[str]) -> dict[str, tuple[tuple[str, FieldType], ...]]:
    """Stream → the fields that are summarised, sorted; `streams`: the catalogue in its order.

    At most STREAMS_MAX: those that have a state (`with_state`), then by name, so that a new stream pushes none out.
    """
    chosen = sorted(
        (name for name, fields in streams.items() if fields and name != sketch.STREAM), key=lambda name: (name not in with_state, name)
    )[:STREAMS_MAX]
    return {name: tuple(sorted(list(streams[name].items())[:FIELDS_MAX])) for name in chosen}


@dataclass(frozen=True, slots=True)
class SummaryJob:
    """The minute summaries of one stream."""

    stream: str
    fields: tuple[tuple[str, FieldType], ...]
    keep: Callable[[str, pa.Table, int], None]
    """Puts (stream, rows, revision) into the lake; the same revision again replaces what it wrote before."""
    sets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Declared sets of devices: name and members. Each is summed up beside the whole."""
    kind: LaneKind = LaneKind.SUMMARY
    queries: tuple[Registered, ...] = ()

    def graph(self, records: DataFrame, partitions: int = 1) -> DataFrame:
        """A row for each field, set of devices and minute that changed: these, readings, count, sum, min, max, variance, sketches."""
        fields = dict(self.fields)
        frames = with_event_time(late.observe(correct(decode(records, fields)), partitions))
        each = readings(frames, fields, ())
        values = each.select("t", "device", F.explode(F.array(*[_value(name, kind) for name, kind in fields.items()])).alias("value"))
        values = values.select("*", self._devices().alias("devices"))
        minute = F.col("t") - F.pmod("t", F.lit(MINUTE_MS).cast("bigint"))
        expires = F.timestamp_millis(minute + MINUTE_MS + LATENESS_MS).alias("expires", metadata={"spark.watermarkDelayMs": 0})
        # A reading draws the same place in the sample each time that it is computed.
        draw = F.xxhash64("device", "t", "value.field", "value.text").alias("draw")
        rows = values.where(F.col("value.text").isNotNull()).select(expires, minute.alias("minute"), "devices", "value.*", draw)
        summed = rows.groupBy("expires", "field", "devices", "minute").agg(
            F.count(F.lit(1)).alias("readings"),
            F.count("x").alias("count"),
            F.sum("x").alias("sum"),
            F.min("x").alias("min"),
            F.max("x").alias("max"),
            F.var_pop("x").alias("variance"),
            F.theta_sketch_agg("text", sketches.THETA_LOG2_ENTRIES).alias("theta"),
            F.count_min_sketch("text", F.lit(_COUNT_MIN_EPS), F.lit(_COUNT_MIN_CONFIDENCE), F.lit(_SEED)).alias("count_min"),
            F.min_by(F.struct("draw", "text"), F.col("draw"), sample.SIZE).alias("sample"),
            *partials.sketch_columns("text", "x", "text"),
        )
        return summed.drop("expires").withColumn("top", F.col("top.sketch"))

    def _devices(self) -> Column:
        """The sets that a reading belongs to; the empty name is that of all."""
        if not self.sets:
            return F.lit("")
        names = [F.lit(""), *(F.when(F.col("device").isin(*members), F.lit(name)) for name, members in self.sets)]
        return F.explode(F.array_compact(F.array(*names)))

    def outputs(self, rows: pa.Table, batch: emit.Batch, broken: emit.Broken) -> Iterator[emit.Output]:  # noqa: ARG002  (no query is in it)
        """The records of `ew.summaries.minute`."""
        for row in rows.to_pylist():
            yield self._output(row)

    def committed(self, rows: pa.Table, revision: int) -> None:
        """The same rows for the lake: only what Kafka has, so that a driver that was fenced leaves nothing there."""
        if rows.num_rows:
            self.keep(self.stream, in_bytes(rows), revision)

    def _output(self, row: Mapping[str, Any]) -> emit.Output:
        readings = row["readings"]
        of_texts = {kind: row[kind] for kind in (SketchKind.HLL, SketchKind.THETA, SketchKind.TOP)}
        own = {SketchKind.COUNT_MIN: _count_min(row["count_min"]), SketchKind.SAMPLE: _sample(row["sample"], readings)}
        found = {kind: Sketch(readings, data) for kind, data in (of_texts | own).items()}
        if row["count"]:
            found[SketchKind.KLL] = Sketch(row["count"], row["kll"])
        summary = Summary(readings, numbers_of(row), found)
        record = Record(Series(self.stream, row["field"], row["devices"]), row["minute"], row["minute"] + MINUTE_MS, summary)
        return emit.Output(topics.MINUTES, record.key, record.encode())


def in_bytes(rows: pa.Table) -> pa.Table:
    """The rows with Count-Min and sample as other summaries have them, not as Spark has them."""
    tables = [_count_min(data) for data in rows.column("count_min").to_pylist()]
    samples = [_sample(items, n) for items, n in zip(rows.column("sample").to_pylist(), rows.column("readings").to_pylist(), strict=True)]
    kept = rows.drop_columns(["count_min", "sample"])
    return kept.append_column("count_min", pa.array(tables, pa.binary())).append_column("sample", pa.array(samples, pa.binary()))


def _count_min(data: bytes) -> bytes:
    return count_min.CountMin.from_spark(data).encode()


def _sample(items: Sequence[Mapping[str, Any]], readings: int) -> bytes:
    # Spark's hash has a sign; the lowest of all stays the lowest.
    lowest = tuple(sorted((item["draw"] + 2**63, item["text"]) for item in items))
    return sample.Sample(sample.SIZE, readings, lowest).encode()


def _value(name: str, kind: FieldType) -> Column:
    value = F.col(name)
    number = value if kind is FieldType.NUMBER else F.lit(None)
    return F.struct(F.lit(name).alias("field"), number.cast("double").alias("x"), as_text(value, kind).alias("text"))
