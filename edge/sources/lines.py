"""Bytes to lines, bounded. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from edgewake.edge.config import READING_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end. `end` counts the bytes read with it and all before, since the splitter began."""

    text: bytes
    end: int
    too_long: bool = False
    """Only its beginning was kept."""


class LineSplitter:
    """Feed it bytes; it gives whole lines and holds at most one line's bound."""

    def __init__(self, *, start: int = 0, line_bytes_max: int = READING_BYTES_MAX) -> None:
        self._rest = bytearray()
        self._end = start
        self._bound = line_bytes_max
        self._skipping = False

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
        text = bytes(self._rest) + piece
        too_long = self._skipping or len(text) > self._bound
        self._rest.clear()
        self._skipping = False
        text = text.removesuffix(b"\r")
        return Line(text[: self._bound], self._end, too_long) if text.strip() or too_long else None

    def _hold(self, piece: bytes) -> None:
        if not self._skipping and len(self._rest) + len(piece) <= self._bound:
            self._rest += piece
            return
        self._end += len(self._rest) + len(piece)
        self._rest.clear()
        self._skipping = True
