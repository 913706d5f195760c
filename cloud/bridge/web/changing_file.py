"""A file of the door for HTTP that may change while it is in use: passwords, certificates."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from edgewake.protocol.errors import ConfigError

T = TypeVar("T")


class ChangingFile(Generic[T]):
    """Blocking."""

    def __init__(
        self, path: Path, *, key: str, what: str, bytes_max: int, parse: Callable[[str], T]
    ) -> None:
        """Raises ConfigError. A file that is not there yet is an empty one.

        `key`: of the configuration; `what` the file holds, for the log. `parse` raises ValueError,
        or ConfigError where it names the file itself.
        """
        self._path, self._key, self._what = path, key, what
        self._bytes_max, self._parse = bytes_max, parse
        self._log = logging.getLogger(f"edgewake.bridge.{what}")
        self._seen: tuple[int, int, int] | None = None
        """What was read last: a file that cannot be opened is tried again, what is wrong in one is
        not read again."""
        self._failed = ""
        self.value = self._read()

    @property
    def seen(self) -> object:
        """What was read last, as far as two of it can be compared."""
        return self._seen

    def look(self) -> bool:
        """Read the file again where it changed. One that became wrong changes nothing.

        Was it read?
        """
        try:
            if self._stamp() == self._seen:
                return False
            self.value = self._read()
        except (OSError, ConfigError) as error:
            if str(error) != self._failed:  # once, however often it is looked at meanwhile
                self._failed = str(error)
                text = "the %s of before stay: %s"
                facts = {"event": f"{self._what}.refused"}
                self._log.error(text, self._what, error, extra=facts)
            return False
        self._failed = ""
        return True

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> T:
        try:
            stamp = self._stamp()
            if stamp is None:
                self._seen = None
                return self._parse("")
            with self._path.open("rb") as file:
                text = file.read(self._bytes_max + 1)
            self._seen = stamp
            if len(text) > self._bytes_max:
                raise ValueError(f"expected at most {self._bytes_max} bytes")
            return self._parse(text.decode())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self._key} = {self._path}: {error}") from error
