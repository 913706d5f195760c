"""Names in order, for lists that are read page by page.

What is new is merged in now and then, not at each name. No I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

MERGE_AT: Final = 1000
"""Changes after which they are merged without a reader, so that no reader pays for more."""


class NameIndex:
    """A set of names that can be read in order from any name on."""

    def __init__(self) -> None:
        self._sorted: list[str] = []
        self._added: set[str] = set()
        self._removed: set[str] = set()

    def add(self, name: str) -> None:
        """Add a name that is not in it."""
        if name in self._removed:
            self._removed.discard(name)
        else:
            self._added.add(name)
            if len(self._added) >= MERGE_AT:
                self._merge()

    def remove(self, name: str) -> None:
        """Remove a name that is in it."""
        if name in self._added:
            self._added.discard(name)
        else:
            self._removed.add(name)
            if len(self._removed) >= MERGE_AT:
                self._merge()

    def after(self, name: str | None) -> Iterator[str]:
        """The names behind `name`, in order; all for None. Not to be changed meanwhile."""
        self._merge()
        first = 0 if name is None else bisect_right(self._sorted, name)
        return (self._sorted[i] for i in range(first, len(self._sorted)))

    def _merge(self) -> None:
        if self._removed:
            self._sorted = [one for one in self._sorted if one not in self._removed]
            self._removed.clear()
        if self._added:
            self._sorted += sorted(self._added)
            self._sorted.sort()  # two sorted runs: sort() merges them
            self._added.clear()
