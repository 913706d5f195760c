"""Which files to merge and which to give up. Pure.

A writer that is asked each minute makes 1440 files a day of a small stream. MERGE_FILES of one level become one of the next, so that a row
is written again a few times at most; what is left of a day that is over becomes one.
"""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from edgewake.cloud.lake.manifest import File
from edgewake.cloud.lake.shape import ColumnType, Fields, agrees

MERGE_FILES: Final = 16
MERGE_ROWS_MAX: Final = 500_000
"""Rows of a merged file. A file of half as many is merged no more."""


def to_merge(files: Iterable[File], *, today: str) -> list[Sequence[File]]:
    """Groups of files that become one each, oldest first."""
    groups: dict[tuple[str, str], list[File]] = defaultdict(list)
    for file in files:
        if file.rows < MERGE_ROWS_MAX // 2:
            groups[file.topic, file.date].append(file)
    found: list[Sequence[File]] = []
    for (_, date), group in sorted(groups.items()):
        levels = [[file for file in group if file.level == level] for level in sorted({file.level for file in group})]
        enough = [level for level in levels if len(level) >= MERGE_FILES]
        found += [part for level in (enough if date >= today else [group]) if len(part := _together(level)) > 1]
    return found


def to_drop(files: Iterable[File], *, today: str, days: int, bytes_max: int) -> list[File]:
    """What is older than `days`, and then the oldest days until the rest has `bytes_max`."""
    ordered = sorted(files, key=lambda file: (file.date, file.written_at, file.path))
    # The earlier of two clocks, ours and the newest record's: one that jumps a year ahead would delete everything, and for good.
    newest = min(today, ordered[-1].date) if ordered else today
    kept_from = (dt.date.fromisoformat(newest) - dt.timedelta(days=days)).isoformat()
    left = sum(file.bytes for file in ordered)
    dropped = []
    for file in ordered:
        if file.date >= kept_from and left <= bytes_max:
            break
        dropped.append(file)
        left -= file.bytes
    return dropped


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
