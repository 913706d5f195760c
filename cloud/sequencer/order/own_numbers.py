"""Readings that a thing numbered itself, each once, by whichever gateways they came. Pure.

A thing that did not hear that a gateway kept its reading sends it again, perhaps to another
gateway; then both bring it, and may have kept it for days. It is the same reading where the thing's
number and its time say so: the number has come, with times around this one. A number that comes
again with another time comes from a counter that restarted, and passes.

What has come is remembered in blocks of 64 numbers, each with the first and last time in it. Full
neighbours become one run beyond BLOCKS_MAX, the oldest first, so a thing that numbers without holes
costs little for ever; of one with holes the oldest numbers are forgotten, and what then comes again
passes: it may count twice, and is never lost.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import Final, NamedTuple

from edgewake.protocol.frames.frame import COUNTER_MAX

BLOCK: Final = 64
BLOCKS_MAX: Final = 128
"""Blocks and runs that are remembered of one thing and stream: 5 KB, and 8,192 numbers where every
second one is of another stream."""
_FULL: Final = (1 << BLOCK) - 1
_PIECE: Final = Struct("<QQQqq")


class _Piece(NamedTuple):
    """Blocks `first` to `last`; more than one are full."""

    first: int
    last: int
    bits: int
    from_ms: int
    to_ms: int


class OwnNumbers:
    """The recent numbers of one thing and stream, with their times."""

    def __init__(self, encoded: bytes = b"") -> None:
        """Raises ValueError for bytes that `encode` did not make."""
        if len(encoded) % _PIECE.size:
            raise ValueError("not the numbers of a thing")
        self._pieces = [_Piece(*values) for values in _PIECE.iter_unpack(encoded)]

    def encode(self) -> bytes:
        """Encode the numbers for a row."""
        return b"".join(_PIECE.pack(*piece) for piece in self._pieces)

    def is_new(self, number: object, time_ms: int) -> bool:
        """Has this reading not come yet? It has from now on. What is not a number is always new."""
        if type(number) is not int or not 0 <= number <= COUNTER_MAX:
            return True
        block, bit = number // BLOCK, 1 << number % BLOCK
        at = bisect_right(self._pieces, block, key=lambda piece: piece.first) - 1
        piece = self._pieces[at] if at >= 0 and self._pieces[at].last >= block else None
        if piece is not None and piece.bits & bit:
            return self._is_anew(piece, block, bit, time_ms)
        if piece is None:
            self._pieces.insert(at + 1, _Piece(block, block, bit, time_ms, time_ms))
            self._shrink()
        else:
            self._pieces[at] = piece._replace(
                bits=piece.bits | bit,
                from_ms=min(piece.from_ms, time_ms),
                to_ms=max(piece.to_ms, time_ms),
            )
        return True

    def _is_anew(self, piece: _Piece, block: int, bit: int, time_ms: int) -> bool:
        """A number that has come: is it another reading?"""
        if piece.from_ms <= time_ms <= piece.to_ms:
            return False
        if time_ms > max(one.to_ms for one in self._pieces):
            self._pieces = [_Piece(block, block, bit, time_ms, time_ms)]
        return True

    def _shrink(self) -> None:
        pieces = self._pieces
        if len(pieces) <= BLOCKS_MAX:
            return
        for at in range(len(pieces) - 1):
            one, next_one = pieces[at], pieces[at + 1]
            if one.bits == next_one.bits == _FULL and one.last + 1 == next_one.first:
                pieces[at : at + 2] = [
                    _Piece(
                        one.first,
                        next_one.last,
                        _FULL,
                        min(one.from_ms, next_one.from_ms),
                        max(one.to_ms, next_one.to_ms),
                    )
                ]
                return
        oldest = min(range(len(pieces)), key=lambda at: pieces[at].to_ms)
        del pieces[oldest]
