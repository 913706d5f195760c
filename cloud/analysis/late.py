"""Late readings: those of windows that are closed, which Spark drops. Counted, and told with query, window and examples.

The plan of a micro-batch notes how old the oldest reading in it is (`observe`). Only where windows as old as that are closed the driver
reads the batch's records once more, as a batch job without state, and sorts their readings out (`late_windows`). So readings of now pay
for one comparison per frame, and 10,000 old ones in one frame for being exploded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.clock_correction import correct, corrected
from edgewake.cloud.analysis.decode import decode, readings
from edgewake.cloud.analysis.query_plan import Query
from edgewake.cloud.analysis.tags import passes
from edgewake.cloud.analysis.window_columns import bounds, contains
from edgewake.protocol.field_type import FieldType

OBSERVED: Final = "frames"
EXAMPLES_MAX: Final = 10
"""Readings that are told in full for each query, window and batch; all are counted, and all stand on their stream."""
WINDOWS_MAX: Final = 1000
"""Windows of a batch, of all queries, that are told one by one, the oldest first; the rest is told as one number for each query."""


@dataclass(frozen=True, slots=True)
class LateWindow:
    """Readings of one batch that came too late for a window, or (without one) for all windows beyond WINDOWS_MAX."""

    place: int
    """Of the query among its lane's."""
    start: int | None
    end: int | None
    readings: int
    examples: tuple[str, ...] = ()
    """Readings as JSON: device, t (corrected), and the fields that the lane's queries use."""
    stream: str | None = None
    """Whose readings they are, where that is not the query's stream."""


def observe(frames: DataFrame, partitions: int) -> DataFrame:
    """The same frames; on the way each batch is measured.

    Frames, readings, the oldest event time (ms, corrected), flagged frames; and of each of the topic's partitions the latest event time and
    the latest reception.
    """
    latest: list[Column] = []
    for i in range(partitions):
        is_there = F.pmod("partition", F.lit(partitions)) == i
        latest += [
            F.max(F.when(is_there, F.col("top"))).alias(f"top_{i}"),
            F.max(F.when(is_there, F.col("received_at"))).alias(f"read_{i}"),
        ]
    return frames.observe(
        OBSERVED,
        F.count(F.lit(1)).alias("frames"),
        F.sum(F.size("t")).alias("readings"),
        F.min(corrected(F.array_min("t"))).alias("oldest"),
        F.count("clock_flag").alias("flagged"),
        *latest,
    )


def late_windows(
    records: DataFrame, queries: Sequence[Query], fields: Mapping[str, FieldType], closed: Sequence[int | None]
) -> list[LateWindow]:
    """Sort out the readings of a batch (`records`: Kafka's) for whose windows it is too late. `closed`: per query, the end of windows.

    A reading counts once for each closed window that it belongs to.
    """
    each = readings(correct(decode(records, fields)), fields, ())
    reading = F.to_json(F.struct("device", "t", *sorted(fields)))
    windows = [_windows(place, query, end) for place, (query, end) in enumerate(zip(queries, closed, strict=True)) if end is not None]
    if not windows:
        return []
    sorted_out = each.select(reading.alias("reading"), F.explode(F.concat(*windows)).alias("late")).select("reading", "late.*")
    grouped = sorted_out.groupBy("place", "start", "end").agg(
        F.count(F.lit(1)).alias("readings"), F.slice(F.collect_list("reading"), 1, EXAMPLES_MAX).alias("examples")
    )
    rows = grouped.orderBy("end", "start", "place").limit(WINDOWS_MAX + 1).collect()
    found = [LateWindow(row["place"], row["start"], row["end"], row["readings"], tuple(row["examples"])) for row in rows[:WINDOWS_MAX]]
    if len(rows) <= WINDOWS_MAX:
        return found
    told = {place: sum(one.readings for one in found if one.place == place) for place in range(len(queries))}
    totals = {row["place"]: row["count"] for row in sorted_out.groupBy("place").count().collect()}
    return found + [LateWindow(place, None, None, total - told[place]) for place, total in sorted(totals.items()) if total > told[place]]


def _windows(place: int, query: Query, closed: int) -> Column:
    """The closed windows of a reading, as array<struct<place, start, end>>."""
    made = []
    for hops in range(query.window.hops):
        start, end = bounds(query.window, hops)
        window, is_in = F.struct(F.lit(place).alias("place"), start.alias("start"), end.alias("end")), contains(query.window, hops)
        made.append(window if is_in is None else F.when(is_in, window))
    windows = F.array(*made)
    is_late = passes(query, F.col) & (bounds(query.window, query.window.hops - 1)[1] <= closed)
    none = F.array().cast("array<struct<place:int,start:bigint,end:bigint>>")
    return F.when(is_late, F.filter(windows, lambda window: window.isNotNull() & (window["end"] <= closed))).otherwise(none)
