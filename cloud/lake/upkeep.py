"""Which files to merge and which to give up. Pure.

A writer that is asked each minute makes 1440 files a day of a small stream. MERGE_FILES of one
level become one of the next, so that a row is written again a few times at most; what is left of a
day that is over becomes one.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from edgewake.cloud.lake.manifest import File
from edgewake.cloud.lake.shape import ColumnType, Fields, Kind, agrees
from edgewake.protocol import topics

MERGE_FILES: Final = 16
MERGE_ROWS_MAX: Final = 500_000
"""Rows of a merged file. A file of half as many is merged no more."""
_DAY_MS: Final = 86_400_000


def to_merge(files: Iterable[File], *, today: str) -> list[Sequence[File]]:
    """Groups of files that become one each, oldest first."""
    groups: dict[tuple[str, str], list[File]] = defaultdict(list)
    for file in files:
        if file.rows < MERGE_ROWS_MAX // 2:
            groups[file.topic, file.date].append(file)
    found: list[Sequence[File]] = []
    for (_, date), group in sorted(groups.items()):
        levels = [
            [file for file in group if file.level == level]
            for level in sorted({file.level for file in group})
        ]
        enough = [level for level in levels if len(level) >= MERGE_FILES]
        parts = map(_together, enough if date >= today else [group])
        found += [part for part in parts if len(part) > 1]
    return found


def to_drop(files: Iterable[File], *, today: str, days: int, bytes_max: int) -> list[File]:
    """Files to drop: those older than `days`, then the oldest until the rest has `bytes_max`.

    Summaries are kept as long as their topics, and go last: they say most in the fewest bytes.
    """
    ordered = sorted(
        files, key=lambda file: (file.kind is Kind.SUMMARY, file.date, file.written_at, file.path)
    )
    # The earlier of two clocks, ours and the newest record's: one that jumps a year ahead would
    # delete everything, and for good.
    newest = min(today, max((file.date for file in ordered), default=today))
    dropped = [file for file in ordered if file.date < _kept_from(file, newest, days)]
    kept = [file for file in ordered if file.date >= _kept_from(file, newest, days)]
    left = sum(file.bytes for file in kept)
    for file in kept:
        if left <= bytes_max:
            break
        dropped.append(file)
        left -= file.bytes
    return dropped


def _kept_from(file: File, newest: str, days: int) -> str:
    kept_days = (
        topics.SUMMARIES_KEPT_MS[file.topic] // _DAY_MS if file.kind is Kind.SUMMARY else days
    )
    return (dt.date.fromisoformat(newest) - dt.timedelta(days=kept_days)).isoformat()


def _together(files: Sequence[File]) -> list[File]:
    """The first of them that fit into one file: no field of two types, and not too many rows."""
    fields: dict[str, ColumnType] = {}
    rows, found = 0, list[File]()
    for file in files:
        if _fits(fields, file, rows):
            fields |= file.fields
            rows += file.rows
            found.append(file)
    return found


def _fits(fields: Fields, file: File, rows: int) -> bool:
    return agrees(fields, file.fields) and rows + file.rows <= MERGE_ROWS_MAX
