"""Functions of a device's earlier readings: robust z-score, trend, seasonal baseline and others.

The others are the seasonal z-score, and whether a value was seen before. Pure: no Kafka, no Spark.

Each function is a step (state, time, value) → (state, result): the state is a small JSON value, of
one device and one expression. Readings count in the order of the log, which is a device's own. A
null is not counted as a value, and its result is null.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from edgewake.cloud.queries.terms.evaluate import local
from edgewake.protocol.sketches.seen import Seen
from edgewake.protocol.sketches.sketch import item_text

State = Any
Result = float | bool | None
Stepped = tuple[State, Result]

VALUES_MAX: Final = 500
"""Values that a robust z-score looks back at: all of them are written down with each reading."""
POINTS_MAX: Final = 500
"""Readings of a trend; of more in its time the latest ones count."""
TREND_MIN: Final = 3
"""Readings that a trend needs."""
SEASON_MIN: Final = 10
"""Readings that a slot of a season needs before it says anything."""
SEASON_WEIGHT_MAX: Final = 1_000
"""Readings after which a slot forgets its oldest as fast as new ones come."""
MAD_TO_DEVIATION: Final = 1.4826
"""Median absolute deviation to standard deviation, of a normal distribution."""
NUMBER_MAX: Final = 1e140
"""A larger number is taken for null: squares of smaller ones stay finite."""


@dataclass(frozen=True, slots=True)
class Past:
    """One call of such a function."""

    function: str
    size: int
    """robust_zscore: values; trend: ms; of a season: slots; seen_before: values."""
    zone: str = "UTC"
    seen: Seen | None = None
    """What the functions in SEEN remember."""

    @property
    def is_of_all(self) -> bool:
        """Is one state kept for the readings of all devices?"""
        return self.function == SEEN_BY_ANYONE

    def step(self, state: State, t: int, value: object) -> Stepped:
        """After one more reading of the device at `t` (event time, ms).

        `state`: None before the first.
        """
        if self.seen is not None:
            return (
                (state, None) if value is None else self.seen.step(state, t, item_text(value))  # type: ignore[arg-type]
            )
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not abs(value) <= NUMBER_MAX
        ):
            return state, None
        after, result = _STEPS[self.function](self, state, t, float(value))
        return after, result if result is None or math.isfinite(result) else None


def _robust_zscore(past: Past, state: Sequence[float] | None, _: int, value: float) -> Stepped:
    """The robust score against the values before this one.

    It is null while there are fewer than half of them, and where most of them are equal and this
    one is not.
    """
    before = list(state or ())
    return [*before, value][-past.size :], _score(before, value) if 2 * len(
        before
    ) >= past.size else None


def _score(before: Sequence[float], value: float) -> float | None:
    middle = median(before)
    deviation = MAD_TO_DEVIATION * median(abs(one - middle) for one in before)
    if deviation == 0:
        return 0.0 if value == middle else None
    return (value - middle) / deviation


def _trend(past: Past, state: Sequence[tuple[int, float]] | None, t: int, value: float) -> Stepped:
    """Slope per second of the line through the readings of the last `size` ms, with this one."""
    points = [[at, one] for at, one in [*(state or ()), (t, value)] if at > t - past.size][
        -POINTS_MAX:
    ]
    if len(points) < TREND_MIN:
        return points, None
    mean_t, mean = (
        math.fsum(at for at, _ in points) / len(points),
        math.fsum(one for _, one in points) / len(points),
    )
    spread = math.fsum((at - mean_t) ** 2 for at, _ in points)
    slope = (
        None
        if spread == 0
        else 1000 * math.fsum((at - mean_t) * (one - mean) for at, one in points) / spread
    )
    return points, slope


def _seasonal_baseline(
    past: Past, state: Mapping[str, Any] | None, t: int, value: float
) -> Stepped:
    """The mean of the readings before this one in the same hour of the day, or of the week."""
    _, mean, _ = _slot(past, state, t)
    return _after(past, state, t, value), mean


def _seasonal_zscore(past: Past, state: Mapping[str, Any] | None, t: int, value: float) -> Stepped:
    """The value's distance from that mean in standard deviations of the same readings.

    It is null where all of them are equal.
    """
    count, mean, squares = _slot(past, state, t)
    deviation = math.sqrt(squares / (count - 1)) if mean is not None else 0.0
    return _after(past, state, t, value), None if mean is None or deviation == 0 else (
        value - mean
    ) / deviation


def _place(past: Past, t: int) -> str:
    at = local(t, past.zone)
    return str(at.hour if past.size <= HOURS["day"] else at.weekday() * 24 + at.hour)


def _slot(past: Past, state: Mapping[str, Any] | None, t: int) -> tuple[int, float | None, float]:
    count, mean, squares = (state or {}).get(_place(past, t), (0, 0.0, 0.0))
    return count, mean if count >= SEASON_MIN else None, squares


def _after(past: Past, state: Mapping[str, Any] | None, t: int, value: float) -> State:
    """Welford's update of count, mean and sum of squared differences.

    Old readings lose weight when there are many.
    """
    place = _place(past, t)
    count, mean, squares = (state or {}).get(place, (0, 0.0, 0.0))
    if count >= SEASON_WEIGHT_MAX:
        squares *= (count - 2) / (count - 1)
        count -= 1
    change = value - mean
    mean += change / (count + 1)
    return {**(state or {}), place: [count + 1, mean, squares + change * (value - mean)]}


SEEN_BY_ANYONE: Final = "seen_before_by_anyone"
SEEN: Final = ("seen_before", SEEN_BY_ANYONE)
HOURS: Final = {"day": 24, "week": 168}
"""Season → its slots of an hour."""
_STEPS: Final[Mapping[str, Callable[[Past, Any, int, float], Stepped]]] = {
    "robust_zscore": _robust_zscore,
    "trend": _trend,
    "seasonal_baseline": _seasonal_baseline,
    "seasonal_zscore": _seasonal_zscore,
}
