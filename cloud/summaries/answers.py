"""What a summary answers: value, bounds, and with which confidence the truth lies within them.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import BaseModel

from edgewake.cloud.summaries.sketches import KINDS, exact_theta, read_theta
from edgewake.cloud.summaries.summary import Summary
from edgewake.protocol.sketches import bloom
from edgewake.protocol.sketches.bloom import Bloom
from edgewake.protocol.sketches.count_min import CountMin
from edgewake.protocol.sketches.sample import Sample
from edgewake.protocol.sketches.sketch import TEXT_BYTES_MAX, SketchKind, item_text

TWO_DEVIATIONS: Final = 0.9545
"""Confidence of bounds at two standard errors."""
KLL_CONFIDENCE: Final = 0.99
"""The confidence of KLL's rank error, as its authors give it."""


class Estimate(BaseModel):
    """A number that is exact (low = value = high, confidence 1) or lies within its bounds.

    The confidence says how probably it does.
    """

    value: float
    low: float
    high: float
    confidence: float
    seen: int
    """Readings it was made from: fewer than `readings` where some devices send no such sketch."""


class Quantile(Estimate):
    """The value at a rank."""

    rank: float


class Item(Estimate):
    """A text and the number of times that it occurred."""

    text: str


class Contained(BaseModel):
    """Did a text occur?"""

    text: str
    value: bool | None
    """`false` is certain; null: it cannot be said, see `reason`."""
    false_positive: float
    """Probability that a text that did not occur is found all the same: `true` is wrong so often,
    and never more often than was declared."""
    seen: int
    """Readings whose values are known."""
    reason: str | None = None
    """Why it cannot be said."""


class Figures(BaseModel):
    """Exact figures; those of numbers are null for other fields, and where no double holds them."""

    readings: int
    count: int
    sum: float | None
    min: float | None
    max: float | None
    mean: float | None
    variance: float | None
    """The variance of the values themselves, not of a larger population."""


class Operation(StrEnum):
    """What is made of two sets of values."""

    UNION = "union"
    INTERSECTION = "intersection"
    DIFFERENCE = "difference"


def figures(summary: Summary) -> Figures:
    """The exact part."""
    numbers = summary.numbers
    if not numbers.count:
        return Figures(
            readings=summary.readings,
            count=0,
            sum=None,
            min=None,
            max=None,
            mean=None,
            variance=None,
        )
    return Figures(
        readings=summary.readings,
        count=numbers.count,
        sum=_finite(numbers.sum),
        min=numbers.min,
        max=numbers.max,
        mean=_finite(numbers.mean),
        variance=numbers.variance,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def distinct(summary: Summary) -> Estimate | None:
    """The number of different values: exact from a theta sketch that has all, else from the HLL."""
    theta, hll = summary.sketch(SketchKind.THETA), summary.sketch(SketchKind.HLL)
    if theta is not None and (
        hll is None
        or (
            not theta.is_estimation_mode()
            and _seen(summary, SketchKind.THETA) >= _seen(summary, SketchKind.HLL)
        )
    ):
        return _of_theta(theta, _seen(summary, SketchKind.THETA))
    if hll is None:
        return None
    bounds = hll.get_lower_bound(2), hll.get_estimate(), hll.get_upper_bound(2)
    low, value, high = (float(round(one)) for one in bounds)
    return Estimate(
        value=value,
        low=low,
        high=high,
        confidence=TWO_DEVIATIONS,
        seen=_seen(summary, SketchKind.HLL),
    )


def _of_theta(theta: Any, seen: int) -> Estimate:
    if not theta.is_estimation_mode():
        count = float(theta.num_retained)
        return Estimate(value=count, low=count, high=count, confidence=1.0, seen=seen)
    low, value, high = (
        float(round(one))
        for one in (theta.get_lower_bound(2), theta.get_estimate(), theta.get_upper_bound(2))
    )
    return Estimate(value=value, low=low, high=high, confidence=TWO_DEVIATIONS, seen=seen)


def set_operation(operation: Operation, one: Summary, two: Summary) -> Estimate | None:
    """The number of different values in both, in one of them, or in `one` alone."""
    import datasketches

    pair = [summary.sketches.get(SketchKind.THETA) for summary in (one, two)]
    first, second = pair
    if first is None or second is None:
        return None
    a, b = read_theta(first.data), read_theta(second.data)
    if operation is Operation.DIFFERENCE:
        found = datasketches.theta_a_not_b().compute(a, b)
    else:
        made = (
            datasketches.theta_union(12)
            if operation is Operation.UNION
            else datasketches.theta_intersection()
        )
        made.update(a)
        made.update(b)
        found = made.get_result()
    return _of_theta(found, first.seen + second.seen)


def quantiles(summary: Summary, ranks: Sequence[float]) -> list[Quantile]:
    """The values at ranks, with those at the bounds of the ranks' error.

    None of a field without numbers.
    """
    kll = summary.sketch(SketchKind.KLL)
    if kll is None or kll.is_empty():
        return []
    error = float(kll.normalized_rank_error(False)) if kll.is_estimation_mode() else 0.0
    confidence = KLL_CONFIDENCE if error else 1.0
    found = []
    for rank in ranks:
        low, value, high = (_at(kll, at) for at in (rank - error, rank, rank + error))
        found.append(
            Quantile(
                rank=rank, value=value, low=low, high=high, confidence=confidence, seen=int(kll.n)
            )
        )
    return found


def _at(kll: Any, rank: float) -> float:
    """The ends are known, though the sketch may no longer hold them."""
    if rank <= 0:
        return float(kll.get_min_value())
    return float(kll.get_max_value() if rank >= 1 else kll.get_quantile(rank, True))


def between(summary: Summary, low: float, high: float) -> Estimate | None:
    """The number of readings with low <= value < high."""
    kll = summary.sketch(SketchKind.KLL)
    if kll is None or kll.is_empty():
        return None
    n = int(kll.n)
    error = float(kll.normalized_rank_error(True)) * n if kll.is_estimation_mode() else 0.0
    value = max(0.0, (kll.get_rank(high, False) - kll.get_rank(low, False)) * n)
    bounds = math.floor(max(0.0, value - error)), math.ceil(min(float(n), value + error))
    return Estimate(
        value=float(round(value)),
        low=float(bounds[0]),
        high=float(bounds[1]),
        confidence=KLL_CONFIDENCE if error else 1.0,
        seen=n,
    )


def frequent(summary: Summary, most: int) -> list[Item]:
    """The most frequent texts; bounds are certain.

    Each is surely among those that occur more often than the sketch's error.
    """
    import datasketches

    top = summary.sketch(SketchKind.TOP)
    if top is None:
        return []
    seen = _seen(summary, SketchKind.TOP)
    rows = top.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES)[:most]
    return [
        Item(
            text=text,
            value=float(value),
            low=float(low),
            high=float(high),
            confidence=1.0,
            seen=seen,
        )
        for text, value, low, high in rows
    ]


def occurrences(summary: Summary, text: str) -> Item | None:
    """The times that a text occurred: never more than `high`, and rarely less than `low`."""
    table = summary.sketch(SketchKind.COUNT_MIN)
    if not isinstance(table, CountMin):
        return None
    high = table.count(text)
    low = max(0, high - table.error)
    return Item(
        text=text,
        value=float(high),
        low=float(low),
        high=float(high),
        confidence=1.0 if not high else table.confidence,
        seen=table.readings,
    )


def presence(summary: Summary, texts: Sequence[str]) -> list[Contained]:
    """Did these texts occur?

    The theta sketch says it while it has all values, else the Bloom filter.
    """
    known = _known(summary) if texts else None
    return [_presence(summary, known, text) for text in texts if known]


def _presence(summary: Summary, known: _Known, text: str) -> Contained:
    size = len(text.encode())
    is_held = 0 < size <= TEXT_BYTES_MAX
    is_there = is_held and known.has(bloom.hash_of(_as_counted(summary, text)))
    reason = None
    if not is_held:
        reason = f"a text of {size} bytes: sketches hold those of 1 to {TEXT_BYTES_MAX}"
    elif is_there and known.false_positives > known.error:
        reason = (
            f"more different values than the filter is for: {100 * known.false_positives:.2g} % "
            f"of all would be found, declared are {100 * known.error:.2g} %"
        )
    elif not is_there and known.seen < summary.readings:
        reason = (
            f"the values of {summary.readings - known.seen} of {summary.readings} readings are not "
            "known"
        )
    return Contained(
        text=text,
        value=None if reason else is_there,
        false_positive=known.false_positives,
        seen=known.seen,
        reason=reason,
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a summary's values, by their hashes (sketches/bloom.py)."""

    seen: int
    has: Callable[[int], bool]
    false_positives: float
    error: float


def _known(summary: Summary) -> _Known:
    theta, found = (summary.sketches.get(kind) for kind in (SketchKind.THETA, SketchKind.BLOOM))
    if theta is not None and (found is None or theta.seen >= found.seen):
        exact = exact_theta(theta.data)
        if exact is not None:
            hashes = frozenset(exact)
            share = len(hashes) / 2**bloom.HASH_BITS
            return _Known(theta.seen, hashes.__contains__, share, bloom.ERROR)
    if found is None:
        return _Known(0, frozenset[int]().__contains__, 0.0, bloom.ERROR)
    filled: Bloom = summary.sketch(SketchKind.BLOOM)
    return _Known(found.seen, filled.has, filled.false_positives, filled.error)


def _as_counted(summary: Summary, text: str) -> str:
    """A number as sketches count it (`7.0` is counted as `7`), where the values are numbers."""
    if not summary.numbers.count or summary.numbers.count < summary.readings:
        return text
    try:
        return item_text(float(text))
    except ValueError:
        return text


def inner_product(one: Summary, two: Summary) -> Estimate | None:
    """The rows of a join on the value: the sum over all texts of count here times count there."""
    a, b = one.sketch(SketchKind.COUNT_MIN), two.sketch(SketchKind.COUNT_MIN)
    if not isinstance(a, CountMin) or not isinstance(b, CountMin):
        return None
    high = a.inner_product(b)
    error = -(-2 * a.readings * b.readings // min(a.width, b.width))
    confidence = min(a.confidence, b.confidence)
    return Estimate(
        value=float(high),
        low=float(max(0, high - error)),
        high=float(high),
        confidence=confidence,
        seen=a.readings + b.readings,
    )


def sample(summary: Summary, most: int) -> list[str]:
    """Some readings' texts, each reading as likely as any other."""
    found = summary.sketch(SketchKind.SAMPLE)
    return [text for _, text in found.items[:most]] if isinstance(found, Sample) else []


def _seen(summary: Summary, kind: SketchKind) -> int:
    assert kind in KINDS
    return summary.sketches[kind].seen if kind in summary.sketches else 0
