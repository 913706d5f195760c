"""The one stateful aggregation: mergeable partials of every (query, part, window, key).

It also extracts figures from them.

The state's schema is fixed for each kind of lane: NUMBERS_PER_TAG slots of count, sum, min, max, in
a distinct lane two HLL (of single readings, and of whole frames), and in a sketch lane one HLL, one
KLL and one frequent-items sketch. They are Apache DataSketches, binary compatible with those of its
other languages. Output mode is `update`: each micro-batch gives the rows that it changed. State
goes when the stream's event time passes a row's `expires`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan import frame_code
from edgewake.cloud.analysis.plan.frame_sums import HLL_LOG2_BUCKETS
from edgewake.cloud.analysis.plan.tags import TAG_COLUMNS
from edgewake.cloud.queries.lane_kind import ITEMS
from edgewake.cloud.queries.query import NUMBERS_PER_TAG

KLL_K: Final = 200
"""Rank error about 1.3 % (single-sided, 99 %); DataSketches' default."""
TOP_ITEMS_MAX: Final = 1024
"""Items that a frequent-items sketch follows; an item more frequent than 1/768 of all is never
missed (0.75 of the map is used)."""


def aggregate(
    tagged: DataFrame, *, inputs: Sequence[str], weights: bool = False, summed: bool = False
) -> DataFrame:
    """Merge tags into partials.

    Out: TAG_COLUMNS, readings, count_i, sum_i, min_i, max_i, and of the tags' `inputs` (lane_kind)
    variance, most, least, hll, kll, top.

    With weights each tag counts `weight` times in readings, count_i and sum_i; out also: taken
    (tags), weight (the largest). Where tags are `summed`, each stands for `readings` of them, and
    has for x_i of one what they have together: count_i, sum_i, least_i and most_i.
    """
    if weights:
        made = weighted()
    elif summed:
        made = sums()
    else:
        made = numbers()
    if "measure" in inputs:
        made.append(F.var_pop("measure").alias("variance"))
    if "extreme" in inputs:
        made += [F.max("extreme").alias("most"), F.min("extreme").alias("least")]
    sketches = {"item": hll, ITEMS: hll_of_frames, "quantity": kll, "top_item": top}
    made += [make(name) for name, make in sketches.items() if name in inputs]
    return tagged.groupBy(*TAG_COLUMNS).agg(*made)


def numbers() -> list[Column]:
    """Readings and the slots of numbers, of tags that stand for a reading each."""
    one, none = F.lit(1).cast("bigint"), F.lit(0).cast("bigint")
    # Sums as those of `sums`, for the state is the same: a query that comes may change how the
    # others' tags are made.
    made = [F.sum(one).alias("readings")]
    for i in range(NUMBERS_PER_TAG):
        x = F.col(f"x_{i}")
        made += [
            F.sum(F.when(x.isNotNull(), one).otherwise(none)).alias(f"count_{i}"),
            *_of_doubles(i, x, x, x),
        ]
    return made


def sums() -> list[Column]:
    """Readings and the slots of numbers, of tags that stand for several readings each."""
    made = [F.sum("readings").alias("readings")]
    for i in range(NUMBERS_PER_TAG):
        made += [
            F.sum(f"count_{i}").alias(f"count_{i}"),
            *_of_doubles(i, *(F.col(f"{what}_{i}") for what in ("sum", "least", "most"))),
        ]
    return made


def _of_doubles(i: int, total: Column, least: Column, most: Column) -> list[Column]:
    return [
        F.sum(total).alias(f"sum_{i}"),
        F.min(least).alias(f"min_{i}"),
        F.max(most).alias(f"max_{i}"),
    ]


def weighted() -> list[Column]:
    """The slots of tags that each stand for `weight` readings."""
    made = [
        F.sum("weight").alias("readings"),
        F.count(F.lit(1)).alias("taken"),
        F.max("weight").alias("weight"),
    ]
    for i in range(NUMBERS_PER_TAG):
        x = F.col(f"x_{i}")
        made += [
            F.sum(F.when(x.isNotNull(), F.col("weight")).otherwise(0)).alias(f"count_{i}"),
            F.sum(x * F.col("weight")).alias(f"sum_{i}"),
            F.min(x).alias(f"min_{i}"),
            F.max(x).alias(f"max_{i}"),
        ]
    return made


def sketch_columns(item: str, quantity: str, top_item: str) -> list[Column]:
    """The three sketches."""
    return [hll(item), kll(quantity), top(top_item)]


def hll(item: str) -> Column:
    """Return a sketch of different values."""
    return F.hll_sketch_agg(item, HLL_LOG2_BUCKETS).alias("hll")


def hll_of_frames(items: str) -> Column:
    """A merged sketch of sketches of items."""
    return F.hll_union_agg(items, False).alias("hll_of_frames")


def kll(quantity: str) -> Column:
    """Return a sketch of quantiles."""
    return F.kll_sketch_agg_double(quantity, KLL_K).alias("kll")


def top(top_item: str) -> Column:
    """Return a sketch of frequent items."""
    return F.call_function("approx_top_k_accumulate", F.col(top_item), F.lit(TOP_ITEMS_MAX)).alias(
        "top"
    )


def estimate(partials: DataFrame, *, ranks: Sequence[float], k: int) -> DataFrame:
    """Replace sketches by the figures that queries want from them.

    The columns are `distinct`, `quantiles` (one per rank, null for an empty sketch) and `top`
    (array).
    """
    kept: list[str | Column] = [
        name
        for name in partials.columns
        if name not in ("expires", "hll", "hll_of_frames", "kll", "top")
    ]
    if "hll_of_frames" in partials.columns:
        kept.append(
            frame_code.estimate_union(
                partials.sparkSession, F.col("hll"), F.col("hll_of_frames")
            ).alias("distinct")
        )
    elif "hll" in partials.columns:
        kept.append(F.hll_sketch_estimate("hll").alias("distinct"))
    if "kll" not in partials.columns:
        return partials.select(*kept)
    asked = F.array(*[F.lit(float(rank)) for rank in ranks or (0.5,)])
    quantiles = F.when(
        F.kll_sketch_get_n_double("kll") > 0, F.kll_sketch_get_quantile_double("kll", asked)
    )
    # Null counts as an item, so one more is asked for, and it is left out at the end.
    items = F.call_function("approx_top_k_estimate", F.col("top"), F.lit(k + 1))
    return partials.select(*kept, quantiles.alias("quantiles"), items.alias("top"))
