"""A file of zeros: its space lets sending and deleting go on when the disk is full."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

RESERVE_NAME: Final = "reserve"


class Reserve:
    """The file."""

    def __init__(self, directory: Path, size: int) -> None:
        """A file of `size` bytes; 0: no file."""
        self._path = directory / RESERVE_NAME
        self._size = size
        self._is_ours = False
        """Was its space seen to be there? A copy that a backup put back may have the size and none
        of the space."""

    def keep(self) -> bool:
        """Have it, all of it: one that a crash left is smaller, or the size is another one now.

        Returns False where the disk has no space.
        """
        if self._size == 0:
            self.give_up()
            return True
        if self._is_ours and self._path.exists() and self._path.stat().st_size == self._size:
            return True
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(fd, 0, self._size)
                os.ftruncate(fd, self._size)
            finally:
                os.close(fd)
        except OSError:
            self._path.unlink(missing_ok=True)
            return False
        self._is_ours = True
        return True

    def give_up(self) -> None:
        """Let its space be used."""
        self._path.unlink(missing_ok=True)
