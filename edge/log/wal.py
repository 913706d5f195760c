"""How much of the write-ahead log's file is in use.

The file is written from its beginning again after each checkpoint and keeps its size: a commit into
a file that need not grow is durable in a fraction of the time, for the file system has nothing to
note of it. So its size does not tell how much of it is there for a reader. The salts do
(https://sqlite.org/fileformat2.html#walformat): a frame that carries those of the header is in use,
one behind the last of them is left from an earlier turn.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_HEADER_BYTES: Final = 32
_PAGE_SIZE = slice(8, 12)
_SALTS = slice(16, 24)
_FRAME_HEADER_BYTES: Final = 24
_FRAME_SALTS = slice(8, 16)


class WriteAheadLog:
    """The file beside the log; it is there while the log is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._emptied = b""
        """Salts of a turn that is wholly in the log: the next commit begins another one."""

    @property
    def file_bytes(self) -> int:
        """Size of the file."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def reaches(self, size: int) -> bool:
        """Whether at least `size` bytes are in use, give or take a page."""
        if self.file_bytes < size:
            return False
        fd = os.open(self._path, os.O_RDONLY)
        try:
            header = os.pread(fd, _HEADER_BYTES, 0)
            frame_bytes = _FRAME_HEADER_BYTES + int.from_bytes(header[_PAGE_SIZE], "big")
            last = max(0, (size - _HEADER_BYTES) // frame_bytes - 1)
            frame = os.pread(fd, _FRAME_HEADER_BYTES, _HEADER_BYTES + last * frame_bytes)
        finally:
            os.close(fd)
        return (
            len(frame) == _FRAME_HEADER_BYTES
            and frame[_FRAME_SALTS] == header[_SALTS] != self._emptied
        )

    def emptied(self) -> None:
        """A checkpoint has copied all of it, and nobody reads it."""
        self._emptied = self._salts()

    def _salts(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(_HEADER_BYTES)[_SALTS]
        except FileNotFoundError:
            return b""
