"""Keeps names sorted, for lists that are read page by page. No I/O.

New names are merged in batches.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

MERGE_AT: Final = 1000
"""Changes after which a merge happens without a reader, which bounds what a reader pays."""


class NameIndex:
    """A set of names that can be iterated in order from any name."""

    def __init__(self) -> None:
        self._sorted: list[str] = []
        self._added: set[str] = set()
        self._removed: set[str] = set()

    def add(self, name: str) -> None:
        """Adds a name that it does not contain."""
        if name in self._removed:
            self._removed.discard(name)
        else:
            self._added.add(name)
            if len(self._added) >= MERGE_AT:
                self._merge()

    def remove(self, name: str) -> None:
        """Removes a name that it contains."""
        if name in self._added:
            self._added.discard(name)
        else:
            self._removed.add(name)
            if len(self._removed) >= MERGE_AT:
                self._merge()

    def after(self, name: str | None) -> Iterator[str]:
        """Yields the names after `name`, sorted; all for None. It must not change meanwhile."""
        self._merge()
        first = 0 if name is None else bisect_right(self._sorted, name)
        return (self._sorted[i] for i in range(first, len(self._sorted)))

    def beginning_with(self, prefix: str) -> Iterator[str]:
        """Yields the names with this beginning, sorted. It must not change meanwhile."""
        self._merge()
        for i in range(bisect_left(self._sorted, prefix), len(self._sorted)):
            if not self._sorted[i].startswith(prefix):
                return
            yield self._sorted[i]

    def _merge(self) -> None:
        if self._removed:
            self._sorted = [one for one in self._sorted if one not in self._removed]
            self._removed.clear()
        if self._added:
            self._sorted += sorted(self._added)
            self._sorted.sort()  # sort() merges two sorted runs in linear time.
            self._added.clear()
