"""Minutes that still take readings: their sums so far, and the offset to recompute them from. Pure.

A batch is summarized without state and merged here with what is known of its minutes. This state is
in memory alone: the log has the readings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from edgewake.cloud.summaries.summary import MINUTE_MS, Record, Series, merged

LATENESS_MS: Final = 600_000
"""Readings that come more than 10 minutes after their minute's end become a part of their own
(late_part)."""
OPEN_BYTES_MAX: Final = 128 << 20
"""Bytes of sketches of open minutes of all streams. Beyond it the oldest minutes are closed, a text
field of many values in eleven minutes has 1 MB; what comes for them afterwards is late."""


class OpenMinutes:
    """The open minutes of all streams."""

    def __init__(self) -> None:
        self._minutes: dict[tuple[str, int], dict[Series, Record]] = {}
        """(stream, begin of the minute in ms) → series → what is known."""
        self._from: dict[tuple[str, int], dict[int, int]] = {}
        """Minutes as above → partition → first offset of the batch with their first reading."""
        self._bytes = 0

    def __len__(self) -> int:
        """How many minutes of streams are open."""
        return len(self._minutes)

    def add(
        self, records: Iterable[Record], starts: Mapping[str, Mapping[int, int]]
    ) -> list[Record]:
        """Merge what a batch brought for open minutes; returns it whole.

        `starts`: stream → each of its partitions, read or not → where the batch began.
        """
        changed = []
        for record in records:
            stream = record.series.stream
            minute = stream, record.start_ms
            known = self._minutes.setdefault(minute, {})
            self._from.setdefault(minute, dict(starts[stream]))
            before = known.get(record.series)
            whole = (
                record
                if before is None
                else replace(record, summary=merged((before.summary, record.summary)))
            )
            self._bytes += _bytes(whole) - (0 if before is None else _bytes(before))
            known[record.series] = whole
            changed.append(whole)
        return changed

    def close(self, stream: str, top: int | None) -> None:
        """Forget a stream's minutes that take nothing any more at event time `top`, ms."""
        for name, start in list(self._minutes):
            if name == stream and is_closed(start + MINUTE_MS, top):
                self._drop((name, start))

    def forget(self, stream: str) -> None:
        """All that is known of a stream."""
        for minute in [one for one in self._minutes if one[0] == stream]:
            self._drop(minute)

    def of(self, stream: str) -> list[Record]:
        """All that is known of a stream."""
        return [
            record
            for (name, _), known in self._minutes.items()
            if name == stream
            for record in known.values()
        ]

    def over_bound(self) -> dict[str, int]:
        """Return stream → event time (ms) it must advance to, so that OPEN_BYTES_MAX holds."""
        left, forced = self._bytes, {}
        for stream, start in sorted(self._minutes, key=lambda minute: minute[1]):
            if left <= OPEN_BYTES_MAX:
                break
            left -= sum(map(_bytes, self._minutes[stream, start].values()))
            forced[stream] = start + MINUTE_MS + LATENESS_MS
        return forced

    def open_from(self, stream: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """Return where a stream that was read to `offsets` is read again after a restart.

        It is partition → offset.
        """
        starts = [start for (name, _), start in self._from.items() if name == stream]
        return {
            partition: min([at, *(start.get(partition, 0) for start in starts)])
            for partition, at in offsets.items()
        }

    def _drop(self, minute: tuple[str, int]) -> None:
        self._bytes -= sum(map(_bytes, self._minutes.pop(minute).values()))
        self._from.pop(minute)


def is_closed(end_ms: int, top: int | None) -> bool:
    """Does a minute that ends then take nothing any more?"""
    return top is not None and end_ms + LATENESS_MS <= top


def open_from(top: int | None) -> int:
    """Begin in ms of the first minute that is open, or of a later moment."""
    return 0 if top is None else max(0, top - LATENESS_MS - MINUTE_MS + 1)


def parted(
    records: Iterable[Record], closed: Mapping[str, int | None]
) -> tuple[list[Record], list[Record]]:
    """What is of open minutes, and what is late.

    `closed`: stream → event time in ms by which minutes are closed.
    """
    of_both: tuple[list[Record], list[Record]] = [], []
    for record in records:
        of_both[is_closed(record.end_ms, closed.get(record.series.stream))].append(record)
    return of_both


def _bytes(record: Record) -> int:
    return sum(len(sketch.data) for sketch in record.summary.sketches.values())
