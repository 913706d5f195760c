"""Keys in their order, as they come and go: a page begins in the middle of a million of them. Pure.

They lie in pieces of at most PIECE_MAX keys, so that one more moves few of the others. That is what
`sortedcontainers` does, too; these fifty lines are not worth a library more in every server, of
which the last release is of 2021.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

PIECE_MAX: Final = 2000
"""Keys of a piece: as many are moved for one more, and a million keys are some hundred pieces."""


class KeyOrder:
    """Each key once."""

    def __init__(self) -> None:
        self._pieces: list[list[str]] = []
        """None of them is empty."""
        self._lasts: list[str] = []
        """The last key of each piece."""

    def add(self, key: str) -> None:
        """One more, which must not be there."""
        if not self._pieces:
            self._pieces, self._lasts = [[key]], [key]
            return
        at = min(bisect_left(self._lasts, key), len(self._lasts) - 1)
        piece = self._pieces[at]
        insort(piece, key)
        if len(piece) > PIECE_MAX:
            half = len(piece) // 2
            self._pieces[at : at + 1] = [piece[:half], piece[half:]]
            self._lasts.insert(at, piece[half - 1])
            at += 1
        self._lasts[at] = self._pieces[at][-1]

    def remove(self, key: str) -> None:
        """One that is there."""
        at = bisect_left(self._lasts, key)
        piece = self._pieces[at]
        del piece[bisect_left(piece, key)]
        if piece:
            self._lasts[at] = piece[-1]
        else:
            del self._pieces[at], self._lasts[at]

    def after(self, key: str | None) -> Iterator[str]:
        """The keys behind this one; all, where it is None. Read them before one comes or goes."""
        if key is None:
            return chain.from_iterable(self._pieces)
        at = bisect_right(self._lasts, key)
        if at == len(self._pieces):
            return iter(())
        first = self._pieces[at]
        rest = chain.from_iterable(islice(self._pieces, at + 1, None))
        return chain(islice(first, bisect_right(first, key), None), rest)
