"""What a row says of itself when readings were left out of it. Pure.

It also says how far its corrected values may be off:

"kept": 0.25                     the share of the readings that it is made of
"margins": {"times": 41.2}       corrected: counts and sums, each reading standing for several;
                                 half of an interval of 95 %
"of_kept": ["fastest"]           of the readings that are kept alone: all but counts, sums and
                                 means, and what is computed of such

A reading that was taken stands for `weight` of them. The variance of a sum of such readings is the
sum of w (w - 1) x² over those that were taken. State has no sum of squares; that of values with
mean m between a and b is at most n ((b - m) (m - a) + m²), so a margin is too wide rather than too
narrow (Bhatia and Davis 2000). Few readings of a group have no normal distribution: a count has the
score interval of a Poisson count (Agresti and Coull 1998), in steps of the largest weight, and a
sum that times 1 + 2 / n, where n readings stand for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, Final

import orjson
import pyarrow as pa

from edgewake.cloud.queries.query import NUMBERS_PER_TAG, Aggregate, Query
from edgewake.cloud.queries.terms.tree import fields_of

Z: Final = 1.96
"""The quantile of a two-sided interval of 95 %."""
_CORRECTED: Final = ("count_all", "count", "sum", "avg")


def marks(query: Query, parts: Sequence[pa.Table]) -> list[str]:
    """Return for each row the text after its columns in JSON; empty: nothing was left out."""
    first = parts[0]
    weights = first["weight"].to_pylist()
    if max(weights, default=1) <= 1:
        return [""] * first.num_rows
    by_name = {aggregate.name: aggregate for aggregate in query.aggregates}
    used = {
        output.name: [by_name[name] for name in fields_of(output.expression) if name in by_name]
        for output in query.outputs
    }
    rough = [
        name
        for name, aggregates in used.items()
        if any(one.function not in _CORRECTED for one in aggregates)
    ]
    plain = {output.name: getattr(output.expression, "name", None) for output in query.outputs}
    direct = {output: by_name[name] for output, name in plain.items() if name in by_name}
    columns = {
        name: _margins(one, parts) for name, one in direct.items() if one.function in _CORRECTED[:3]
    }
    kept = zip(weights, first["taken"].to_pylist(), first["readings"].to_pylist(), strict=True)
    texts = []
    for i, (weight, taken, readings) in enumerate(kept):
        margins = {name: column[i] for name, column in columns.items() if column[i] is not None}
        texts.append("" if weight <= 1 else _text(taken / readings, margins, rough))
    return texts


def _text(kept: float, margins: dict[str, float | None], rough: list[str]) -> str:
    text = f',"kept":{kept:.4g}'
    if margins:
        text += f',"margins":{orjson.dumps(margins).decode()}'
    return f'{text},"of_kept":{orjson.dumps(rough).decode()}' if rough else text


def _margins(aggregate: Aggregate, parts: Sequence[pa.Table]) -> list[float | None]:
    part, i = divmod(aggregate.slot, NUMBERS_PER_TAG)
    rows = parts[part]
    weights = rows["weight"].to_pylist()
    if aggregate.function == "count_all":
        return [
            count_margin(count, weight)
            for count, weight in zip(rows["readings"].to_pylist(), weights, strict=True)
        ]
    counts = rows[f"count_{i}"].to_pylist()
    if aggregate.function == "count":
        return [count_margin(count, weight) for count, weight in zip(counts, weights, strict=True)]
    values = [rows[f"{name}_{i}"].to_pylist() for name in ("sum", "min", "max")]
    standing = [
        (readings - taken) / max(1, weight - 1)
        for readings, taken, weight in zip(
            rows["readings"].to_pylist(), rows["taken"].to_pylist(), weights, strict=True
        )
    ]
    return [_sum_margin(*row) for row in zip(counts, *values, weights, standing, strict=True)]


def count_margin(count: int, weight: int) -> float:
    """The margin of a corrected count. `weight`: the largest of a reading in it."""
    return _margin((weight - 1) * count, weight)


def _sum_margin(
    count: int, total: Any, least: Any, most: Any, weight: int, standing: float
) -> float | None:
    return (
        None
        if not count or total is None
        else sum_margin(count, total, least, most, weight, standing)
    )


def sum_margin(
    count: int, total: float, least: float, most: float, weight: int, standing: float
) -> float:
    """The margin of a corrected sum of `count` (corrected) values between `least` and `most`.

    `standing`: how many of them stand for others.
    """
    mean = total / count
    spread = max(0.0, (most - mean) * (mean - least))
    few = 1 + 2 / max(1.0, standing)
    return few * _margin(
        (weight - 1) * count * (spread + mean * mean), weight * max(abs(least), abs(most))
    )


def _margin(variance: float, step: float) -> float:
    return float(f"{Z * sqrt(variance + (Z * step / 2) ** 2) + Z * Z * step / 2:.4g}")
