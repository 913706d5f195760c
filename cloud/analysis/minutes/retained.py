"""The earliest minute, hour and day of a stream that are certainly still retained. Pure.

The analysis determines it as far as it can without reading the summaries.

Summaries are kept for a time after they were written (topics.SUMMARIES_KEPT_MS), whatever time they
are about, and event time says nothing about when that was: a stream may be a recording, or silent
for weeks. So for each day of the clock it is noted how far event time had come. What is later than
what was noted a week ago was written within the week.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgewake.cloud.summaries.summary import DAY_MS, KEPT_MS, Step

DAYS: Final = KEPT_MS[Step.MINUTE] // DAY_MS - 1
"""Days of the clock that are noted, today being one: a day less than minutes are kept."""
Noted = Mapping[int, int | None]
"""Day of the clock (since 1970 UTC) → event time in ms to which the stream had come before it was
first summed up that day."""


def noted(days: Noted, top: int | None, now_ms: int) -> dict[int, int | None]:
    """Add today's entry and drop those that are too old."""
    today = now_ms // DAY_MS
    # A device's clock that is ahead of ours must not make all minutes of the others old.
    reached = None if top is None else min(top, now_ms)
    return {today: reached} | {day: at for day, at in days.items() if today - DAYS < day <= today}


def oldest(days: Noted, top: int | None, now_ms: int) -> dict[Step, int]:
    """Step → begin in ms from which such are kept.

    `days`: with today; `top`: event time, of which nothing after our clock counts.
    """
    if top is None:  # a stream that begins may be a recording of any time
        return dict.fromkeys(Step, 0)
    found = {step: max(0, min(now_ms, top) - KEPT_MS[step]) for step in (Step.HOUR, Step.DAY)}
    return {Step.MINUTE: days[min(days)] or 0, **found}
