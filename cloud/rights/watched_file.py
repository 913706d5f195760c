"""A file that is read again when it changes.

One that cannot be used leaves the earlier contents in place, and the log says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from edgewake.protocol.errors import ConfigError

log = logging.getLogger("edgewake.rights")

T = TypeVar("T")


class WatchedFile(Generic[T]):
    """What `read` makes of a file's text. Raises ConfigError where it cannot be used at first."""

    def __init__(self, key: str, path: Path, read: Callable[[str], T]) -> None:
        """`key`: of the configuration."""
        self._key, self._path, self._parse = key, path, read
        self._stamp: tuple[int, int, int] | None = None
        """What was read last: a file that cannot be opened is tried again, what is wrong in one is
        not read again."""
        self._failed = ""
        self.value = self._read(self._look())

    def reload(self) -> bool:
        """Read it again if it changed; is its value another one?"""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        try:
            value = self._read(stamp)
        except ConfigError as error:
            if str(error) != self._failed:  # once, however often it is tried
                self._failed = str(error)
                log.error("%s; it stays as it was", error, extra={"event": "rights.file"})
            return False
        self._failed = ""
        is_new = value != self.value
        self.value = value
        log.info("%s read again", self._path, extra={"event": "rights.file"})
        return is_new

    def _look(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self, stamp: tuple[int, int, int] | None) -> T:
        try:
            with self._path.open(encoding="utf-8") as file:
                self._stamp = stamp
                return self._parse(file.read())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._key} = {str(self._path)!r}: {error}") from error
        except ConfigError as error:
            raise ConfigError(f"{self._key} = {str(self._path)!r}: {error}") from error
