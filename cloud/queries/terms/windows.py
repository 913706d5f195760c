"""Windows of time, as values: where they begin and end, and up to where they are over.

Pure; plan/window_columns.py makes them in Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from edgewake.cloud.queries.terms.evaluate import begin_of, local, ms_of

CALENDAR_UNITS: Final = ("day", "week", "month", "quarter", "year")
"""Windows whose length the calendar of a zone decides. Weeks begin on Mondays."""
ALL_TIME_MS: Final = 253_402_300_800_000
"""Where the window ends that never does: the beginning of the year 10000. Milliseconds up to it are
exact in a double."""
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


class Rule(StrEnum):
    """What begins and ends a window that conditions decide (folds/patterns.py)."""

    THRESHOLD = "threshold"
    SUCCESSION = "succession"
    ABSENCE = "absence"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One kind of window. A reading is in each window with start <= time < end.

    Fixed: they begin at offset_ms + n * slide_ms since 1970 UTC and last size_ms. Calendar: the
    days, weeks … of a zone. All: one window from 1970 to ALL_TIME_MS, which is never over. Sessions
    and windows by count: folds/sequences.py; here a reading is a window of one instant, which ends
    with it: what is as old as the windows that are closed is late.
    """

    size_ms: int
    """The window's size; of a calendar window its longest."""
    slide_ms: int
    offset_ms: int = 0
    unit: str | None = None
    """One of CALENDAR_UNITS, or `all`; None where windows are fixed."""
    zone: str = "UTC"
    time: str = "t"
    """Which time of a reading counts: t (event time, corrected) or received_at."""

    gap_ms: int = 0
    """The gap of sessions: a reading that comes that long after the one before begins a new one. 0
    for other windows."""
    count: int = 0
    """Readings of a window by count. 0 of other windows."""
    step: int = 0
    """A window by count begins each time that many readings have come."""
    rule: Rule | None = None
    """The rule of a window that conditions decide."""
    for_ms: float = 0
    """How long a threshold's condition must hold."""
    within_ms: int = 0
    """The longest time from a succession's first reading to its last, and the silence that makes an
    absence."""

    @property
    def is_sequence(self) -> bool:
        """Do the readings of a key decide its bounds?

        They do for a session, a window by count, or a pattern.
        """
        return self.gap_ms > 0 or self.count > 0 or self.rule is not None

    @property
    def ends(self) -> bool:
        """Does event time end it?"""
        return not self.is_all and self.count == 0 and self.rule is None

    @property
    def waits(self) -> bool:
        """Does something become of it when event time goes on without a reading?"""
        return self.ends or self.rule is Rule.ABSENCE

    @property
    def is_all(self) -> bool:
        """Is it the one window that is never over?"""
        return self.unit == "all"

    @property
    def hops(self) -> int:
        """In how many windows a reading may be."""
        return 1 if self.unit is not None else -(-self.size_ms // self.slide_ms)

    @property
    def divides(self) -> bool:
        """Does the slide divide the size?

        Then a reading is always in `hops` windows, else sometimes in one fewer.
        """
        return self.size_ms % self.slide_ms == 0

    def latest(self, time_ms: int) -> tuple[int, int]:
        """Start and end of the window that began last at this time."""
        if self.unit is None:
            if self.is_sequence:
                return time_ms, time_ms + (self.gap_ms or self.within_ms)
            start = time_ms - (time_ms - self.offset_ms) % self.slide_ms
            return start, start + self.size_ms
        if self.is_all:
            return 0, ALL_TIME_MS
        start_local = begin_of(self.unit, local(time_ms, self.zone))
        return ms_of(start_local), ms_of(after(self.unit, start_local))

    def around(self, time_ms: int) -> list[tuple[int, int]]:
        """Start and end of each window that a reading of this time is in, the latest first.

        Not of sessions and windows by count.
        """
        start, end = self.latest(time_ms)
        if self.unit is not None:
            return [(start, end)]
        starts = range(start, time_ms - self.size_ms, -self.slide_ms)
        return [(one, one + self.size_ms) for one in starts]

    def over(self, time_ms: int) -> int:
        """The latest time not after `time_ms` at which a window ends.

        All windows that end there or earlier are over.

        0 of the window that is never over.
        """
        if self.is_sequence:
            return time_ms
        if self.unit is None:
            return time_ms - (time_ms - self.offset_ms - self.size_ms) % self.slide_ms
        return self.latest(time_ms)[0]


def after(unit: str, begin: datetime) -> datetime:
    """When the next unit of the calendar begins, in the same zone."""
    if unit in _MONTHS:
        month = begin.month - 1 + _MONTHS[unit]
        return begin.replace(year=begin.year + month // 12, month=month % 12 + 1)
    return begin + timedelta(days=7 if unit == "week" else 1)


ALL: Final = Window(size_ms=ALL_TIME_MS, slide_ms=ALL_TIME_MS, unit="all")
"""The window of a query that names none: everything since the query began."""
