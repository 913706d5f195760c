"""Late readings, counted where they are still to be seen: before Spark's watermark drops them.

A reading is late for a query when the first window that it belongs to was final before its batch. Which windows are final only the
driver knows, so the plan reports, frame by frame, the ends of windows that *could* be (those a batch's own time has passed), and the
driver compares. Frames of now cost one comparison for each query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.clock_correction import corrected
from edgewake.cloud.analysis.decode import rows
from edgewake.cloud.analysis.query_plan import Query
from edgewake.cloud.analysis.tags import passes
from edgewake.protocol.stream import FieldType

CLOCKS_APART_MS: Final = 5_000
"""How far a bridge's clock may be ahead of the driver's without a late reading being overlooked."""
OBSERVED: Final = "frames"


def observe(frames: DataFrame, queries: Sequence[Query], fields: Mapping[str, FieldType]) -> DataFrame:
    """The same frames; on the way each batch is measured: frames, readings, top, flagged, late (text for `late_counts`)."""
    now = F.unix_millis(F.current_timestamp())
    notes = [F.concat(F.lit(f"{i}="), _ends(query, fields, now)) for i, query in enumerate(queries)]
    noted = frames.select("*", F.nullif(F.concat_ws(";", *notes), F.lit("")).alias("$late"))
    measured = noted.observe(
        OBSERVED,
        F.count(F.lit(1)).alias("frames"),
        F.sum(F.size("t")).alias("readings"),
        F.max("top").alias("top"),
        F.count("clock_flag").alias("flagged"),
        F.array_join(F.collect_list("$late"), "|").alias("late"),
    )
    return measured.drop("$late")


def _ends(query: Query, fields: Mapping[str, FieldType], now: Column) -> Column:
    """`end:count,end:count` of a frame's readings in windows that may be final; null where there are none."""

    def first_end(t: Column) -> Column:
        return t - F.pmod(t, F.lit(query.slide_ms).cast("bigint")) + query.slide_ms

    def may_be_final(t: Column) -> Column:
        return first_end(t) + query.lateness_ms <= now + CLOCKS_APART_MS

    def counts(reading: Column) -> Column:
        def resolve(name: str) -> Column:
            return F.col("device") if name == "device" else reading[name]

        return may_be_final(corrected(reading["t"])) & passes(query, resolve)

    def told(oldest: Column) -> Column:
        ends = F.transform(F.filter(rows(fields), counts), lambda reading: first_end(corrected(reading["t"])))
        each = F.transform(
            F.array_distinct(ends), lambda end: F.concat(end, F.lit(":"), F.size(F.filter(ends, lambda other: other == end)))
        )
        return F.when(may_be_final(oldest), F.nullif(F.array_join(each, ","), F.lit("")))

    # The batch's time is a constant of its plan. Spark writes constants into the code that it generates, except within a lambda, and
    # code that differs from the last batch's would be compiled again for every batch.
    oldest = F.least(F.array_min("t") + F.col("shift"), F.col("received_at"))
    return F.element_at(F.transform(F.array(oldest), told), 1)


def late_counts(text: str) -> Iterator[tuple[int, int, int]]:
    """(place of the query, end of window, readings) from what `observe` noted."""
    for frame in filter(None, text.split("|")):
        for note in frame.split(";"):
            place, _, ends = note.partition("=")
            for end_count in ends.split(","):
                end, _, count = end_count.partition(":")
                yield int(place), int(end), int(count)
