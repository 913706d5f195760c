"""A part's output in a file of bounded size: PART.log, and the one before it as PART.log.1.

A disk that refuses a log stops nobody: the lines are counted and the count is written when the disk
takes lines again.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

LOG_BYTES_MAX: Final = 8 << 20
"""Bytes of a log file before it is turned over; a part keeps at most twice as much."""
LINE_BYTES_MAX: Final = 32 << 10
"""Bytes of a line; what is longer is cut."""


def turned_over(path: Path) -> Path:
    """The full file before this one."""
    return path.with_name(path.name + ".1")


class PartLog:
    """Appends lines and turns the file over. Not for several writers."""

    def __init__(self, path: Path, *, bytes_max: int = LOG_BYTES_MAX) -> None:
        self.path = path
        self.last_line = ""
        """The last line of the process that runs, or ran last."""
        self._bytes_max = bytes_max
        self._file: BinaryIO | None = None
        self._size = 0
        self._unwritten = 0

    def begin(self) -> None:
        """A new process of the part: what was written before is not said by it."""
        self.last_line = ""

    def write(self, line: bytes) -> None:
        """Append one line, without its end."""
        line = line[:LINE_BYTES_MAX].rstrip()
        if not line:
            return
        self.last_line = line.decode("utf-8", "replace")
        try:
            self._append(line)
        except OSError:
            self._unwritten += 1
            self.close()

    def _append(self, line: bytes) -> None:
        if self._file is None or self._size + len(line) > self._bytes_max:
            self._turn_over()
        assert self._file is not None
        if self._unwritten:
            line = b"[%d lines before this one could not be written]\n" % self._unwritten + line
        self._file.write(line + b"\n")
        self._unwritten = 0
        self._size += len(line) + 1

    def _turn_over(self) -> None:
        """Open the file, the full one moved aside."""
        self.close()
        self._size = self.path.stat().st_size if self.path.exists() else 0
        if self._size >= self._bytes_max - LINE_BYTES_MAX:
            self.path.replace(turned_over(self.path))
            self._size = 0
        self._file = self.path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file; a later line opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None
