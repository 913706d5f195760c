"""How much came in and went on over the last minutes, for a chart. No I/O."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

POINTS_MAX: Final = 180
"""A point for each look at the offsets, each five seconds: a quarter of an hour."""


def delay_s(waiting: int | None, per_s: float | None) -> float | None:
    """How long what waits takes at this pace; None where it is not known, or nothing moves."""
    if waiting == 0:
        return 0.0
    if waiting is None or not per_s:
        return None
    return round(waiting / per_s, 2)


class Point(NamedTuple):
    """One look: rates since the look before."""

    age_s: float
    """Seconds before now."""
    received_per_s: float
    """Records that the bridges wrote."""
    passed_on_per_s: float
    """Records on the streams, each once and in order."""
    computed_per_s: float
    """Readings that queries took, of all queries together."""


class Flow:
    """The points."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float, float, float]] = deque(maxlen=POINTS_MAX)
        self._before: tuple[float, int, int] | None = None

    def sample(self, at_s: float, *, received: int, passed_on: int, computed_per_s: float) -> None:
        """Counts as they are at `at_s`, monotonic."""
        before, self._before = self._before, (at_s, received, passed_on)
        if before is None or at_s <= before[0]:
            return
        seconds = at_s - before[0]
        self._points.append(
            (
                at_s,
                round(max(0, received - before[1]) / seconds, 1),
                round(max(0, passed_on - before[2]) / seconds, 1),
                round(computed_per_s, 1),
            )
        )

    def points(self, now_s: float) -> list[Point]:
        """Oldest first."""
        return [Point(round(now_s - at_s, 1), *rates) for at_s, *rates in self._points]

    @property
    def newest(self) -> Point | None:
        """The last look; None before two looks."""
        return Point(0.0, *self._points[-1][1:]) if self._points else None
