"""The windows of terms/windows.py as Spark columns over a reading."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from edgewake.cloud.analysis.plan.columns import local, ms_of
from edgewake.cloud.queries.terms.windows import ALL_TIME_MS, Window

_LENGTHS: Final = {
    "day": {"days": 1},
    "week": {"weeks": 1},
    "month": {"months": 1},
    "quarter": {"months": 3},
    "year": {"years": 1},
}


def bounds(window: Window, hops: int) -> tuple[Column, Column]:
    """Return start and end (ms) of the window `hops` windows before a reading's latest.

    The reading has the columns t and received_at.
    """
    if window.is_all:
        return F.lit(0).cast("bigint"), F.lit(ALL_TIME_MS).cast("bigint")
    time = F.col(window.time)
    if window.is_sequence:
        return time, time
    begin = start(window, time)
    if window.unit is None:
        begin -= hops * window.slide_ms
        return begin, begin + window.size_ms
    end = begin + F.make_interval(
        **{name: F.lit(count) for name, count in _LENGTHS[window.unit].items()}
    )
    return ms_of(begin, window.zone), ms_of(end, window.zone)


def start(window: Window, time: Column) -> Column:
    """When the latest window of a time (ms) began.

    In ms; for a calendar window the wall clock of its zone.
    """
    if window.unit is None:
        return time - F.pmod(time - window.offset_ms, F.lit(window.slide_ms).cast("bigint"))
    return F.date_trunc(window.unit, local(time, window.zone))


def contains(window: Window, hops: int) -> Column | None:
    """Is the reading in that window? None where it always is."""
    return (
        None
        if window.divides or hops < window.hops - 1
        else F.col(window.time) < bounds(window, hops)[1]
    )
