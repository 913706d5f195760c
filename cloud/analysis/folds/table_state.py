"""A table as it is now: of each key the latest row.

And of a query over tables, what its result's rows depend on. Pure: no Kafka, no clock.

Of two rows of a key the one with the later event time counts, of equals the one that is further on
in the log. So what a table is in the end does not depend on the order in which its rows came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import orjson

ROWS_MAX: Final = 100_000
"""Rows of a table, some 300 bytes each. Beyond it the one that has not changed for longest is
forgotten, as if it had never been."""
CHARS_MAX: Final = 64 << 20
"""Characters of the texts in all rows of a table: one row may have a million. Beyond it as with
ROWS_MAX."""

Place: TypeAlias = tuple[int, int, int]
"""The place of a reading in its stream: partition, offset, number in the frame."""
LEFT: Final = "<"
RIGHT: Final = ">"
"""Begin the names of the two tables' rows where they are written down."""


@dataclass(slots=True)
class Row:
    """A row of a table."""

    since: int
    """Event time, ms."""
    place: Place
    values: list[Any]
    refers: str | None = None
    """Key of the row that a row of FROM is joined with; None where it cannot have one."""
    emitted: str = ""
    """What stands for the row of the result that a row of FROM emitted; empty where it emitted
    none."""

    @property
    def chars(self) -> int:
        """Characters of its texts."""
        return sum(len(value) for value in self.values if type(value) is str)


@dataclass
class Latest:
    """The latest rows of one table."""

    of: dict[str, Row] = field(default_factory=dict)
    """Key (JSON) → its row. The one that changed longest ago is the first."""
    changed: set[str] = field(default_factory=set)
    """Keys to be written down, those that are gone too."""
    chars: int = 0

    def put(self, key: str, row: Row) -> bool:
        """One more row; does it count?"""
        before = self.of.get(key)
        if before is not None:
            if (row.since, row.place) <= (before.since, before.place):
                return False
            row.emitted = before.emitted
        self.remove(key)
        self.of[key] = row
        self.chars += row.chars
        return True

    def remove(self, key: str) -> Row | None:
        """Forget a key; its row, if it had one."""
        self.changed.add(key)
        row = self.of.pop(key, None)
        self.chars -= 0 if row is None else row.chars
        return row

    def is_over(self) -> bool:
        """Is more kept than may be?"""
        return len(self.of) > 1 and (len(self.of) > ROWS_MAX or self.chars > CHARS_MAX)


@dataclass
class Linked:
    """The table of FROM, the one that it is joined with, and the rows to compute again."""

    left: Latest = field(default_factory=Latest)
    right: Latest = field(default_factory=Latest)
    read_to: dict[str, dict[int, int]] = field(default_factory=dict)
    """Topic → partition → offset of the next record."""
    forgotten: int = 0
    """Rows since the last `take`, of either table."""
    _referring: dict[str, dict[str, None]] = field(default_factory=dict)
    """Key of the right table → keys of the left rows that refer to it."""
    _due: dict[str, None] = field(default_factory=dict)
    _gone: list[Row] = field(default_factory=list)

    def put_left(self, key: str, row: Row) -> None:
        """A row of FROM."""
        before = self.left.of.get(key)
        if not self.left.put(key, row):
            return
        self._refer(key, None if before is None else before.refers, row.refers)
        self._due[key] = None
        while self.left.is_over():
            self.forgotten += 1
            self._drop(next(iter(self.left.of)))

    def put_right(self, key: str, row: Row) -> None:
        """A row of the other table."""
        if not self.right.put(key, row):
            return
        self._due |= self._referring.get(key, {})
        while self.right.is_over():
            self.forgotten += 1
            self.remove_right(next(iter(self.right.of)))

    def remove_right(self, key: str) -> None:
        """Remove a row of the other table."""
        if self.right.remove(key) is not None:
            self._due |= self._referring.get(key, {})

    def take(self) -> tuple[list[str], list[Row]]:
        """Return keys of FROM whose results may have changed, and rows of FROM forgotten since."""
        found = list(self._due), self._gone
        self._due, self._gone, self.forgotten = {}, [], 0
        return found

    def _drop(self, key: str) -> None:
        row = self.left.remove(key)
        assert row is not None
        self._refer(key, row.refers, None)
        self._due.pop(key, None)
        self._gone.append(row)

    def _refer(self, key: str, before: str | None, now: str | None) -> None:
        if before is not None and before != now:
            others = self._referring[before]
            del others[key]
            if not others:
                del self._referring[before]
        if now is not None:
            self._referring.setdefault(now, {})[key] = None

    def dump(self) -> Iterator[tuple[str, bytes | None]]:
        """Return what changed since the last call and must be written: name → row.

        The row is None where it was removed.
        """
        for side, table in ((LEFT, self.left), (RIGHT, self.right)):
            for key in sorted(table.changed):
                row = table.of.get(key)
                value = (
                    None
                    if row is None
                    else orjson.dumps([row.since, row.place, row.values, row.refers, row.emitted])
                )
                yield f"{side}{key}", value
            table.changed.clear()

    def load(self, name: str, value: bytes) -> None:
        """Read the rows that `dump` wrote, in the order in which they were written."""
        since, place, values, refers, emitted = orjson.loads(value)
        row, key = Row(since, tuple(place), values, refers, emitted), name[1:]
        table = self.left if name.startswith(LEFT) else self.right
        table.of[key] = row
        table.chars += row.chars
        if name.startswith(LEFT):
            self._refer(key, None, refers)
