"""The rows already emitted, so that a row that no longer qualifies can be withdrawn.

A lane keeps them for queries whose rows can become untrue: HAVING, and ORDER BY … LIMIT. A row that
was emitted and no longer passes is *withdrawn*: emitted once more without values, as `"withdrawn":
true`. The memory is lost with the process. In windows that began before, every row that does not
pass may have been emitted, so it is withdrawn when it changes: once too often does no harm. With
LIMIT the other groups of such a window are unknown: its rows say `"complete": false`.

Pure, but for what it remembers. A batch that is computed again leaves it as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Any, Final

ROWS_MAX: Final = 200_000
"""Rows remembered for each query, about 100 bytes each (of LIMIT 500). Beyond it: HAVING withdraws
all that does not pass, LIMIT leaves the oldest window as it is."""

Place = tuple[int, int, str]
"""Window's start and end (ms), and the group as JSON."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A row, ordered as in its window."""

    rank: tuple[Any, ...]
    text: str


@dataclass
class EmittedRows:
    """The emitted rows of one query."""

    unknown_to: int | None = None
    """Windows that begin before it (ms) may have been emitted by an earlier process."""
    marked: dict[tuple[int, int], dict[str, tuple[str, int]]] = field(default_factory=dict)
    """Window → group → the text that was emitted last ("" for a withdrawal) and its revision. A
    revision may be tried again, so a row emitted under the same revision counts as not emitted."""
    windows: dict[tuple[int, int], dict[str, Ranked]] = field(default_factory=dict)
    """Candidates of LIMIT: all rows of each window that is not closed."""
    marked_count: int = 0
    """Rows in all windows of `said`. A counter, because a week that arrives at once has ten
    thousand windows, and the number is needed for each row."""
    ranked_rows: int = 0
    """Rows in all of `windows`."""

    def is_unknown(self, start: int) -> bool:
        """May rows of this window have been emitted by an earlier process?"""
        return self.unknown_to is not None and start < self.unknown_to

    def mark(self, place: Place, text: str, revision: int) -> None:
        """Remember that the row is emitted now, or withdrawn ("")."""
        start, end, group = place
        rows = self.marked.setdefault((start, end), {})
        if group not in rows and self.marked_count >= ROWS_MAX:
            self.unknown_to = max(start + 1, self.unknown_to or 0)
        else:
            self.marked_count += group not in rows
            rows[group] = text, revision

    def is_unchanged(self, place: Place, text: str, revision: int) -> bool:
        """Was this text emitted last, in an earlier revision?"""
        start, end, group = place
        known = self.marked.get((start, end), {}).get(group)
        if known is None:
            return text == "" and not self.is_unknown(start)
        return known[0] == text and known[1] < revision

    def was_emitted(self, place: Place) -> bool:
        """Was the row emitted, and not withdrawn since?"""
        start, end, group = place
        return self.marked.get((start, end), {}).get(group, ("", 0))[0] != ""

    def rank(self, place: Place, row: Ranked | None) -> None:
        """Put a changed row of a window with LIMIT; None: HAVING refuses it."""
        start, end, group = place
        rows = self.windows.setdefault((start, end), {})
        self.ranked_rows += (row is not None) - (group in rows)
        if row is None:
            rows.pop(group, None)
        else:
            rows[group] = row
        if len(rows) > 1 and self.ranked_rows > ROWS_MAX:
            self.ranked_rows -= len(self.windows.pop(min(self.windows)))

    def groups(self, window: tuple[int, int]) -> list[str]:
        """The groups of a window with emitted or withdrawn rows."""
        return list(self.marked.get(window, {}))

    def first(self, window: tuple[int, int], limit: int) -> Iterator[tuple[str, str]]:
        """The group and text of a window's first rows."""
        rows = self.windows.get(window, {})
        for group, row in nsmallest(limit, rows.items(), key=lambda item: (item[1].rank, item[0])):
            yield group, row.text

    def forget(self, closed: int | None) -> None:
        """Forget windows that end by then: they are closed."""
        if closed is not None:
            self.marked = {
                window: rows for window, rows in self.marked.items() if window[1] > closed
            }
            self.windows = {
                window: rows for window, rows in self.windows.items() if window[1] > closed
            }
            self.marked_count, self.ranked_rows = (
                sum(map(len, of.values())) for of in (self.marked, self.windows)
            )
