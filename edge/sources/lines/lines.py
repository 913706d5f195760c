"""Bytes to lines, bounded. Pure.

A byte order mark before the first line is skipped, and so are NUL bytes before a line: a
writer that does not append goes on at its old place in a file that `copytruncate` has emptied, and
leaves a hole before its next line.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import Final

from edgewake.protocol.frames.frame import READING_BYTES_MAX

EXTRA_BYTES: Final = len(BOM_UTF8) + 1
"""Bytes that a line may have beside its own: a byte order mark before it, a CR after it."""
TOO_LONG: Final = "a line past its bound"
"""What is said of one that is refused."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end.

    `end` counts the bytes read with it and all before, since the splitter began.
    """

    text: bytes
    end: int
    too_long: bool = False
    """It was longer than the bound; nothing of it was kept."""


class LineSplitter:
    """Feed it bytes; it gives whole lines and holds at most one line's bound."""

    def __init__(self, *, start: int = 0, line_bytes_max: int = READING_BYTES_MAX) -> None:
        self._rest = bytearray()
        self._end = start
        self._bound = line_bytes_max
        self._skipping = False
        self._is_first = start == 0

    def feed(self, data: bytes) -> list[Line]:
        """The lines that `data` completes. Empty ones are left out; CR LF ends a line too."""
        lines: list[Line] = []
        *whole, last = data.split(b"\n")
        for piece in whole:
            self._end += len(self._rest) + len(piece) + 1
            line = self._finish(piece)
            if line is not None:
                lines.append(line)
        self._hold(last)
        return lines

    def last(self) -> list[Line]:
        """What is left when no more comes: a last line without an end."""
        self._end += len(self._rest)
        line = self._finish(b"")
        return [] if line is None else [line]

    def _finish(self, piece: bytes) -> Line | None:
        text = (
            (bytes(self._rest) + piece if self._rest else piece).removesuffix(b"\r").lstrip(b"\0")
        )
        if self._is_first:
            self._is_first, text = False, text.removeprefix(BOM_UTF8)
        too_long = self._skipping or len(text) > self._bound
        self._rest.clear()
        self._skipping = False
        if too_long:
            return Line(b"", self._end, too_long=True)
        return Line(text, self._end) if text.strip() else None

    def _hold(self, piece: bytes) -> None:
        if not self._rest and not self._skipping:
            kept = piece.lstrip(b"\0")
            self._end += len(piece) - len(kept)
            piece = kept
        if not self._skipping and len(self._rest) + len(piece) <= self._bound + EXTRA_BYTES:
            self._rest += piece
            return
        self._end += len(self._rest) + len(piece)
        self._rest.clear()
        self._skipping = True
