"""How far event time has come, computed from how far each partition has. Pure.

It decides which windows are final, and what Spark may evict.

After a backlog partitions are read by the number of their records, not by their time, so one of
them runs ahead. Event time therefore stands where the *furthest back* partition stands of those
that are `behind`: with unread records, and the last one that was read received a while ago. A
partition that is read as fast as it is written holds nothing up, whatever old times its devices
send. With none behind it is the latest event time of all, for nobody knows of anything earlier to
come. It never goes back.

What a sequencer that is away has not passed on holds it, too (upstream_hold).

A stream that falls silent has windows that nobody would end. After a while event time goes on with
the clock, until the last windows with something in them are final, and no further: what a whole
fleet brings after an outage meets no more than these windows final.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from edgewake.cloud.queries.query import Query

BEHIND_MS: Final = 10_000
"""A partition is behind while its latest read record was received longer ago than this. Reading and
batch take less."""

SPARK_STEP_MS: Final = 30_000
"""Spark gets event time in steps of this size: for every new value it compiles the condition for
evicting windows again, in every batch. State lives up to a step longer; what is final and what
is late the driver decides, by event time as it is."""


def for_spark(top: int) -> int:
    """Event time, ms, up to which Spark may forget windows."""
    return top - top % SPARK_STEP_MS


def behind(
    left: Mapping[int, int], received_at: Mapping[int, int], read: Collection[int], now_ms: int
) -> set[int]:
    """The partitions that are behind.

    `left`: partition → unread records; `received_at`: partition → reception of the latest reading
    that was read, ms. `read`: partitions of which the batch read something. A partition that brings
    records without readings holds nothing up.
    """
    return {
        partition
        for partition, records in left.items()
        if records
        and (
            now_ms - received_at[partition] > BEHIND_MS
            if partition in received_at
            else partition not in read
        )
    }


def progress(before: int | None, tops: Mapping[int, int], behind: Collection[int]) -> int | None:
    """Event time in ms.

    `tops`: partition → its latest event time; `behind`: the partitions that are.
    """
    if not tops or not tops.keys() >= set(behind):
        return before
    reached = min((tops[partition] for partition in behind), default=max(tops.values()))
    return reached if before is None else max(before, reached)


def held(before: int | None, reached: int | None, hold: int | None) -> int | None:
    """Event time in ms that does not pass `hold`, and does not go back."""
    if hold is None or reached is None or reached <= hold:
        return reached
    return before if before is None or before > hold else hold


def progress_in_silence(
    before: int | None, tops: Mapping[int, int], silent_ms: int, queries: Iterable[Query]
) -> int | None:
    """Event time in ms when nothing is left to read and nothing came for `silent_ms`.

    `before` is None where it was never known: the last of the few readings came while something
    held it. None where there are no readings.
    """
    latest = max(tops.values(), default=before)
    if latest is None:
        return None
    end = last_end(latest, queries)
    if end is None:
        end = latest if before is None else before
    reached = min(latest + silent_ms, end)
    return reached if before is None else max(before, reached)


def last_end(latest: int, queries: Iterable[Query]) -> int | None:
    """Event time in ms at which the last windows with readings up to `latest` are final.

    None where no query has a window that ends.
    """
    ends = (
        query.window.latest(latest)[1] + query.lateness_ms
        for query in queries
        if query.window.waits
    )
    return max(ends, default=None)
