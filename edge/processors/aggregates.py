"""Aggregates of a field that can be merged: what windows keep instead of the values.

A partial is the list [count, mean, sum of squared differences, min, max, first, last, sum]. Adding
is Welford's method and merging Chan's (Chan, Golub, LeVeque 1979), so the standard deviation of
values far from zero is good too. Numbers are within NUMBER_MAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

Partial: TypeAlias = list[float]


def of(value: float) -> Partial:
    """The partial of one value."""
    return [1, value, 0.0, value, value, value, value, value]


def merged(one: Partial, other: Partial) -> Partial:
    """The partial of what is in `one`, then `other`."""
    count, mean, squares, low, high, first, _, summed = one
    more, its_mean, its_squares, its_low, its_high, _, last, its_sum = other
    total, apart = count + more, its_mean - mean
    return [
        total, mean + apart * (more / total),
        squares + its_squares + apart * apart * (count * more / total),
        min(low, its_low), max(high, its_high), first, last, summed + its_sum,
    ]  # fmt: skip


AGGREGATES: Final[Mapping[str, Callable[[Partial], float]]] = {
    "count": lambda partial: int(partial[0]),
    "mean": lambda partial: partial[1],
    "sum": lambda partial: partial[7],
    "min": lambda partial: partial[3],
    "max": lambda partial: partial[4],
    "range": lambda partial: partial[4] - partial[3],
    "first": lambda partial: partial[5],
    "last": lambda partial: partial[6],
    "stddev": lambda partial: math.sqrt(partial[2] / partial[0]),
}
"""Name → what it is of a partial. The standard deviation is that of the values (divided by their
count)."""
