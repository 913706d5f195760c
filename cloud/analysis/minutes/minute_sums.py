"""Minute summaries: mergeable figures and sketches for each stream, field and minute.

They go to `ew.summaries.minute` (edgewake.cloud.summaries, which makes hours, days and answers of
them) and to the lake (minute_lake.py). Text and boolean fields have no KLL and no figures but the
count of readings. The sketches are Apache DataSketches: HLL of 2^14 buckets and theta of 2^12
entries over texts, KLL of doubles with k 200, frequent strings; and Spark's own Count-Min of texts,
and a sample of readings. Spark's theta sketch holds 2^16 entries; where they are more than 2^12,
and where the series has a declaration, a Bloom filter is made of them. Their columns in the lake:
hll, theta, kll, top, count_min, bloom, sample (the last three in the bytes of
protocol/sketches/count_min.py, sketches/bloom.py and sketches/sample.py).

One Spark job without state sums a batch of all streams up; its plan does not grow with their
number, for which fields there are is data:

    records ─ decode ─ correct ─ one row ─ kind ── one row ── sets of ─ aggregate ─→ open_minutes.py
    of all    frames   clocks    a column  of it   a reading  devices
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan import partials
from edgewake.cloud.analysis.plan.clock_correction import correct, corrected
from edgewake.cloud.analysis.plan.columns import as_text
from edgewake.cloud.analysis.plan.decode import decode_any
from edgewake.cloud.summaries import late_part, sketches
from edgewake.cloud.summaries.summary import (
    MINUTE_MS,
    UNDECLARED,
    Record,
    Series,
    Sketch,
    Summary,
    numbers_of,
)
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.sketches import count_min, sample, sketch
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.sketch import SketchKind

FIELDS_MAX: Final = 32
"""Fields of a stream that are summarised, the first that the catalogue knew: each costs as much as
a query."""
STREAMS_MAX: Final = 64
"""Streams that are summarised: any device may name a new one, and each field has half a megabyte of
open minutes."""

_COUNT_MIN_EPS: Final = 2 / count_min.WIDTH
_COUNT_MIN_CONFIDENCE: Final = 1 - 0.5**count_min.DEPTH
_SEED: Final = 1
"""Number of factors in Spark's Count-Min that are used for numbers only; texts are hashed
without."""
VALUES_LOG2: Final = 16
"""The size of the theta sketch of one batch, from which Bloom filters are made: 65,536 different
values of a minute. Of more nobody can say later whether a value was among them; 1 MB of the heap
while they come."""
EXACT_ITEMS: Final = partials.TOP_ITEMS_MAX * 3 // 4
"""Different texts up to which the frequent items are all texts with their numbers. Spark's table of
40 KiB is then left behind, and made of them: so a minute of few readings takes little memory."""
_TOP, _READ = "$top", "$read"
"""Marks among the columns of a frame, by names that no field can have: its latest event time, and
when it was received."""
_NO_PARTITION: Final = -1
_LAKE_TYPES: Final = {
    kind.value: pa.binary() for kind in SketchKind if kind is not SketchKind.NUMBERS
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The fields, devices and sketches to sum up."""

    streams: Mapping[str, Sequence[tuple[str, FieldType]]] = field(default_factory=dict)
    """Stream → fields and their types."""
    sets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Declared sets of devices: name and members. Each is summed up beside the whole."""
    values: Mapping[tuple[str, str], Bloom] = field(default_factory=dict)
    """(stream, field) → an empty Bloom filter as it is declared: these have one in any case."""


def summarised(
    streams: Mapping[str, Mapping[str, FieldType]], begun: Container[str]
) -> dict[str, tuple[tuple[str, FieldType], ...]]:
    """Stream → the fields that are summarised, sorted; `streams`: the catalogue in its order.

    At most STREAMS_MAX: those that are summed up already (`begun`), then by name, so that a new
    stream pushes none out.
    """
    with_fields = (name for name, fields in streams.items() if fields and name != sketch.STREAM)
    chosen = sorted(with_fields, key=lambda name: (name not in begun, name))
    return {
        name: tuple(sorted(list(streams[name].items())[:FIELDS_MAX]))
        for name in chosen[:STREAMS_MAX]
    }


def graph(records: DataFrame, wanted: Wanted, since: Mapping[str, int]) -> DataFrame:
    """A row for each stream, field, set of devices and minute, with its figures and sketches.

    The columns: the key, readings, count, sum, min, max, variance, sketches. There is also a row
    for each mark and partition of a stream, whose `max` is the mark. `records`: a range of Kafka's
    records of several streams. `since`: stream → start of its first minute in ms; earlier readings
    are dropped before they cost anything. `count_min` is null where `top` has all texts.
    """
    frames = correct(decode_any(records))
    # One task reads all partitions, and Spark leaves the shuffle out.
    frames = (
        frames.coalesce(1)
        if frames.sparkSession.conf.get("spark.sql.shuffle.partitions") == "1"
        else frames
    )
    values = _since(_values(_columns(frames, wanted)), since).withColumn(
        "devices", _devices(wanted.sets)
    )
    # A reading draws the same place in the sample each time that it is computed.
    rows = values.withColumn("draw", F.xxhash64("device", "t", "field", "text"))
    summed = rows.groupBy("stream", "partition", "field", "devices", "minute").agg(
        F.count(F.lit(1)).alias("readings"),
        F.count("x").alias("count"),
        F.sum("x").alias("sum"),
        F.min("x").alias("min"),
        F.max("x").alias("max"),
        F.var_pop("x").alias("variance"),
        F.theta_sketch_agg("text", VALUES_LOG2).alias("theta"),
        F.count_min_sketch(
            "text", F.lit(_COUNT_MIN_EPS), F.lit(_COUNT_MIN_CONFIDENCE), F.lit(_SEED)
        ).alias("count_min"),
        F.min_by(F.struct("draw", "text"), F.col("draw"), sample.SIZE).alias("sample"),
        *partials.sketch_columns("text", "x", "text"),
    )
    has_all = F.theta_sketch_estimate("theta") <= EXACT_ITEMS
    return summed.withColumns(
        {"top": F.col("top.sketch"), "count_min": F.when(~has_all, F.col("count_min"))}
    )


def _since(values: DataFrame, since: Mapping[str, int]) -> DataFrame:
    """The marks, and what is not of earlier minutes."""
    times = F.from_json(F.lit(orjson.dumps(since).decode()), "map<string, bigint>")
    is_earlier = F.col("minute") < F.element_at(times, F.col("stream"))
    return values.where(
        (F.col("partition") != _NO_PARTITION) | ~F.coalesce(is_earlier, F.lit(False))
    )


def _columns(frames: DataFrame, wanted: Wanted) -> DataFrame:
    """One row for each wanted column of a frame and for each mark.

    Beside the frame's own columns a row has `name`, `texts` and `kind`, which is null for a mark.
    """
    marks = [
        F.struct(F.lit(name).alias("key"), F.array(F.col(column).cast("string")).alias("value"))
        for name, column in ((_TOP, "top"), (_READ, "received_at"))
    ]
    fields = F.coalesce(
        F.map_entries("fields"), F.array().cast("array<struct<key: string, value: array<string>>>")
    )
    own = ("stream", "partition", "device", "shift", "received_at", "t")
    each = frames.select(*own, F.explode(F.concat(fields, F.array(*marks))).alias("column"))
    # A constant for Spark, however many names are in it.
    types = orjson.dumps(
        {stream: dict(fields) for stream, fields in wanted.streams.items()}
    ).decode()
    kinds = F.from_json(F.lit(types), "map<string, map<string, string>>")
    name = F.col("column.key")
    kind = F.element_at(F.element_at(kinds, F.col("stream")), name)
    columns = each.select(
        *own, name.alias("name"), F.col("column.value").alias("texts"), kind.alias("kind")
    )
    return columns.where(F.col("kind").isNotNull() | F.col("name").isin(_TOP, _READ))


def _values(columns: DataFrame) -> DataFrame:
    """One row for each value.

    The columns: stream, partition (marks only), device, t (corrected), minute, field, x (numbers
    only), text.
    """
    is_mark = F.col("kind").isNull()
    is_number = F.col("kind") == FieldType.NUMBER
    # The whole column is cast at once: a reading's number is used in many places, and Spark would
    # parse it again in each.
    numbers = F.when(is_number | is_mark, F.col("texts").cast("array<double>")).otherwise(
        F.array().cast("array<double>")
    )
    times = F.when(is_mark, F.array(F.lit(0).cast("bigint"))).otherwise(F.col("t"))
    each = columns.select(
        "stream", "partition", "device", "shift", "received_at", "name", "kind",
        F.explode(F.arrays_zip(times.alias("t"), F.col("texts").alias("text"),
            numbers.alias("x"))).alias("reading"),
    )  # fmt: skip
    t, text, x = corrected(F.col("reading.t")), F.col("reading.text"), F.col("reading.x")
    each = each.where(F.when(is_number | is_mark, x.isNotNull()).otherwise(text.isNotNull()))
    shown = F.when(is_number, as_text(x, FieldType.NUMBER)).when(
        F.col("kind") == FieldType.STRING, as_text(text, FieldType.STRING)
    )
    shown = shown.when(F.col("kind") == FieldType.BOOLEAN, text)
    return each.select(
        "stream",
        F.when(is_mark, F.col("partition")).otherwise(_NO_PARTITION).alias("partition"),
        "device",
        t.alias("t"),
        F.when(is_mark, 0)
        .otherwise(t - F.pmod(t, F.lit(MINUTE_MS).cast("bigint")))
        .alias("minute"),
        F.col("name").alias("field"),
        x.alias("x"),
        shown.alias("text"),
    )


def _devices(sets: Sequence[tuple[str, Sequence[str]]]) -> Column:
    """The sets that a reading belongs to; the empty name is that of all."""
    if not sets:
        return F.lit("")
    names = [
        F.lit(""),
        *(F.when(F.col("device").isin(*members), F.lit(name)) for name, members in sets),
    ]
    return F.explode(F.array_compact(F.array(*names)))


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a job."""

    records: Sequence[Record]
    tops: Mapping[str, Mapping[int, int]]
    """Stream → partition → latest event time, ms."""
    received_at: Mapping[str, Mapping[int, int]]
    """Stream → partition → latest time of reception, ms."""


def found_in(rows: pa.Table, declared: Mapping[tuple[str, str], Bloom]) -> Found:
    """The rows of `graph` as values. `declared`: `Wanted.values`."""
    records: list[Record] = []
    marks: dict[str, dict[str, dict[int, int]]] = {_TOP: {}, _READ: {}}
    for row in rows.to_pylist():
        if row["partition"] == _NO_PARTITION:
            records.append(_record(row, declared.get((row["stream"], row["field"]))))
        elif not row["devices"]:
            marks[row["field"]].setdefault(row["stream"], {})[row["partition"]] = int(row["max"])
    return Found(records, marks[_TOP], marks[_READ])


def _record(row: Mapping[str, Any], declared: Bloom | None) -> Record:
    readings = row["readings"]
    of_texts = {kind: row[kind] for kind in (SketchKind.HLL, SketchKind.TOP)}
    own = _texts(row["theta"], declared) | {
        SketchKind.COUNT_MIN: _count_min(row["count_min"], row["top"]),
        SketchKind.SAMPLE: _sample(row["sample"], readings),
    }
    found = {kind: Sketch(readings, data) for kind, data in (of_texts | own).items()}
    if row["count"]:
        found[SketchKind.KLL] = Sketch(row["count"], row["kll"])
    summary = Summary(readings, numbers_of(row), found)
    return Record(
        Series(row["stream"], row["field"], row["devices"]),
        row["minute"],
        row["minute"] + MINUTE_MS,
        summary,
    )


def _texts(data: bytes, declared: Bloom | None) -> dict[SketchKind, bytes]:
    """Shrink Spark's theta sketch to the usual size, and add a Bloom filter where one is needed."""
    theta = sketches.read_theta(data)
    is_large = theta.num_retained > 1 << sketches.THETA_LOG2_ENTRIES
    found = {SketchKind.THETA: sketches.small_theta(theta) if is_large else data}
    if not theta.is_estimation_mode() and (is_large or declared is not None):
        found[SketchKind.BLOOM] = Bloom.merged([declared or UNDECLARED], theta).encode()
    return found


def _count_min(data: bytes | None, top: bytes) -> bytes:
    if data is not None:
        return count_min.CountMin.from_spark(data).encode()
    return count_min.CountMin.of_counts(sketches.all_texts(top)).encode()


def _sample(items: Sequence[Mapping[str, Any]], readings: int) -> bytes:
    # Spark's hash has a sign; the lowest of all stays the lowest.
    lowest = tuple(sorted((item["draw"] + 2**63, item["text"]) for item in items))
    return sample.Sample(sample.SIZE, readings, lowest).encode()


def lake_rows(records: Iterable[Record]) -> pa.Table:
    """The records as rows of the lake."""
    rows = []
    for record in records:
        numbers, summary = record.summary.numbers, record.summary
        has = numbers.count > 0
        rows.append(
            {
                "field": record.series.field, "devices": record.series.devices,
                "minute": record.start_ms,
                "part": late_part.number(record.maker),
                "readings": summary.readings, "count": numbers.count,
                "sum": numbers.sum if has else None,
                "min": numbers.min if has else None, "max": numbers.max if has else None,
                "variance": numbers.variance,
            } | {kind.value: sketch.data for kind, sketch in summary.sketches.items()}
        )  # fmt: skip
    figures = {
        "readings": pa.int64(),
        "count": pa.int64(),
        **dict.fromkeys(("sum", "min", "max", "variance"), pa.float64()),
    }
    names = {"field": pa.string(), "devices": pa.string(), "minute": pa.int64(), "part": pa.int64()}
    return pa.Table.from_pylist(
        rows, schema=pa.schema(list((names | figures | _LAKE_TYPES).items()))
    )
