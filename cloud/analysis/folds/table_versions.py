"""A table that readings are joined with: each key's rows and the times from which they hold.

Pure: no Kafka, no clock.

A row holds from its own event time until that of the next row of its key. So a reading finds the
row that held when it was made, whatever came since. A row that comes later than the readings it
would have been for changes nothing that was emitted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Final

import orjson

from edgewake.protocol.frames.frame import Scalar

KEYS_MAX: Final = 100_000
"""Keys of a table, some 200 bytes and a row each. Beyond it the one that has had no new row for
longest is forgotten, so it has none."""
CHARS_MAX: Final = 64 << 20
"""Characters of the texts in all rows of a table: one row may have a million. Beyond it as with
KEYS_MAX."""
VERSIONS_MAX: Final = 32
"""Rows of a key that are kept, the latest ones: a reading older than all of them has none."""
_since = itemgetter(0)


def key_text(values: Sequence[Scalar | None]) -> str | None:
    """A key as JSON; None where one of its values is null, for null equals nothing.

    1 and 1.0 are the same key.
    """
    if any(value is None for value in values):
        return None
    return orjson.dumps(
        [float(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]
    ).decode()


def _chars(values: Iterable[Any] | None) -> int:
    return sum(len(value) for value in values or () if type(value) is str)


@dataclass
class Versions:
    """The rows of all keys of one table."""

    of: dict[str, list[tuple[int, list[Any] | None]]] = field(default_factory=dict)
    """Key (JSON) → since when (event time, ms) and the row's values, ascending; None where there is
    no row from then on. The key that changed longest ago is the first."""
    changed: set[str] = field(default_factory=set)
    """Keys to be written down, those that are forgotten too."""
    most: int = VERSIONS_MAX
    """Rows of a key that are kept."""
    chars: int = 0
    """Bytes of the texts in all rows."""
    forgotten: int = 0
    """Keys so far that were forgotten because there is more than is kept."""

    def put(
        self, key: str, since: int, values: list[Any] | None, *, closed: int | None = None
    ) -> None:
        """One more row; of two of the same time the later one counts.

        `closed`: no reading up to this time is looked up any more.
        """
        rows = self.of.pop(key, [])
        self.of[key] = rows
        at = bisect_right(rows, since, key=_since)
        if at and rows[at - 1][0] == since:
            self._remove(rows, at - 1, at)
            at -= 1
        rows.insert(at, (since, values))
        self.chars += _chars(values)
        needless = 0 if closed is None else max(0, bisect_right(rows, closed, key=_since) - 1)
        self._remove(rows, 0, max(needless, len(rows) - self.most))
        self.changed.add(key)
        while len(self.of) > 1 and (len(self.of) > KEYS_MAX or self.chars > CHARS_MAX):
            oldest = next(iter(self.of))
            forgotten = self.of.pop(oldest)
            self._remove(forgotten, 0, len(forgotten))
            self.changed.add(oldest)
            self.forgotten += 1

    def _remove(self, rows: list[tuple[int, list[Any] | None]], first: int, end: int) -> None:
        self.chars -= sum(_chars(values) for _, values in rows[first:end])
        del rows[first:end]

    def at(self, key: str | None, t: int) -> list[Any] | None:
        """The values that held at this time; None where there were none."""
        rows = self.of.get(key, ()) if key is not None else ()
        place = bisect_right(rows, t, key=_since)
        return rows[place - 1][1] if place else None

    def cut(self, most: int) -> None:
        """Keep at most `most` rows of a key from now on."""
        self.most = most
        for key, rows in self.of.items():
            self._remove(rows, 0, max(0, len(rows) - most))
            self.changed.add(key)

    def load(self, key: str, rows: Iterable[tuple[int, list[Any] | None]]) -> None:
        """What was written down of a key."""
        before = self.of.get(key, [])
        self._remove(before, 0, len(before))
        self.of[key] = [(since, values) for since, values in rows]
        self.chars += sum(_chars(values) for _, values in self.of[key])

    def dump(self) -> dict[str, bytes | None]:
        """Return the rows of keys that changed since the last call.

        It is key → rows as JSON; None: forgotten.
        """
        found = {
            key: orjson.dumps(self.of[key]) if key in self.of else None
            for key in sorted(self.changed)
        }
        self.changed.clear()
        return found
