"""Rates of the pipeline over the last minutes, for a chart. No I/O."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

POINTS_MAX: Final = 180
"""The most points: one for each reading of the offsets every five seconds, a quarter of an hour."""


def delay_s(waiting: int | None, per_s: float | None) -> float | None:
    """How long what waits takes at this pace; None where it is not known, or nothing moves."""
    if waiting == 0:
        return 0.0
    if waiting is None or not per_s:
        return None
    return round(waiting / per_s, 2)


class Point(NamedTuple):
    """Rates since the previous point."""

    age_s: float
    """Seconds before now."""
    received_per_s: float
    """Records a second that bridges wrote."""
    passed_on_per_s: float
    """Records a second that the sequencer wrote to streams."""
    computed_per_s: float
    """Readings a second that all queries computed together."""


class Flow:
    """The points of the chart."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float, float, float]] = deque(maxlen=POINTS_MAX)
        self._before: tuple[float, int, int] | None = None

    def sample(self, at_s: float, *, received: int, passed_on: int, computed_per_s: float) -> None:
        """Adds the counts at `at_s`, a monotonic time."""
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
        """Returns the points, oldest first."""
        return [Point(round(now_s - at_s, 1), *rates) for at_s, *rates in self._points]

    @property
    def newest(self) -> Point | None:
        """Returns the last point; None before two samples."""
        return Point(0.0, *self._points[-1][1:]) if self._points else None
