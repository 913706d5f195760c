"""How far event time has come, from how far each partition has: what decides which windows are final, and what Spark may forget. Pure.

After a backlog partitions are read by the number of their records, not by their time, so one of them runs ahead. Event time therefore
stands where the *furthest back* partition stands of those with records that were not read yet; with nothing left to read it is the latest
event time of all, for nobody knows of anything earlier to come. It never goes back.

A stream that falls silent has windows that nobody would end. After a while event time goes on with the clock, until the last windows with
something in them are final, and no further: what a whole fleet brings after an outage meets no more than these windows final.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from edgewake.cloud.analysis.query_plan import Query


def progress(before: int | None, tops: Mapping[int, int], unread: Collection[int]) -> int | None:
    """Event time in ms. `tops`: partition → its latest event time; `unread`: partitions with records that were not read yet."""
    if not tops or not tops.keys() >= set(unread):
        return before
    reached = min((tops[partition] for partition in unread), default=max(tops.values()))
    return reached if before is None else max(before, reached)


def progress_in_silence(before: int, tops: Mapping[int, int], silent_ms: int, queries: Iterable[Query]) -> int:
    """Event time in ms when nothing is left to read and nothing came for `silent_ms`."""
    latest = max(tops.values(), default=before)
    all_final = max((_end_of_last_window(query, latest) + query.lateness_ms for query in queries), default=before)
    return max(before, min(latest + silent_ms, all_final))


def _end_of_last_window(query: Query, time_ms: int) -> int:
    return time_ms - time_ms % query.slide_ms + query.size_ms
