"""A file that may change while it is in use: looked at now and then, read again when it changed.

One that became wrong changes nothing: what was read before stays, and what is wrong is said once.
One that cannot be opened (its volume is away, this process has too many files open) is tried again
at each look, until it was read: else a change that was seen but not read would wait for the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from edgewake.protocol.errors import ConfigError

T = TypeVar("T")

BYTES_MAX: Final = 32 << 20
"""Bytes of a file that says no other bound: what is there by mistake must not fill the memory."""


class ChangingFile(Generic[T]):
    """Blocking. Each of two threads that look at once reads the whole file."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[str], T],
        *,
        what: str,
        log: logging.Logger,
        event: str,
        key: str = "",
        bytes_max: int = BYTES_MAX,
        may_be_missing: bool = False,
        is_named: bool = False,
    ) -> None:
        """Raises ConfigError where it cannot be used at first.

        `parse` gets its text (UTF-8) and raises ValueError or ConfigError; `is_named`: that error
        names the file itself. `what` the file holds, and `event`: for the log. `key`: of the
        configuration, for errors. `may_be_missing`: a file that is not there is an empty one.
        """
        self._path, self._parse = path, parse
        self._what, self._log, self._event = what, log, event
        self._where = f"{key} = {str(path)!r}" if key else str(path)
        self._bytes_max = bytes_max
        self._may_be_missing, self._is_named = may_be_missing, is_named
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
        """Read the file again where it changed; is its value another one?"""
        try:
            if self._stamp() == self._seen:
                self._failed = ""
                return False
            value = self._read()
        except ConfigError as error:
            if str(error) != self._failed:  # once, however often it is looked at meanwhile
                self._failed = str(error)
                text, facts = "keeping the previous %s: %s", {"event": self._event}
                self._log.error(text, self._what, error, extra=facts)
            return False
        self._failed = ""
        is_new = bool(value != self.value)
        self.value = value
        return is_new

    def _stamp(self) -> tuple[int, int, int] | None:
        """Another one whenever the file is another; None where it is not there.

        Raises ConfigError where that cannot be said, or where it has to be there.
        """
        try:
            found = self._path.stat()
        except OSError as error:
            if self._may_be_missing and isinstance(error, FileNotFoundError):
                return None
            raise self._unreadable(error) from error
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> T:
        stamp = self._stamp()
        read = b""
        if stamp is not None:
            try:
                with self._path.open("rb") as file:
                    read = file.read(self._bytes_max + 1)
            except OSError as error:
                raise self._unreadable(error) from error
        self._seen = stamp
        if len(read) > self._bytes_max:
            raise ConfigError(f"{self._where}: expected at most {self._bytes_max} bytes")
        try:
            return self._parse(read.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self._where}: byte {error.start} is not UTF-8") from error
        except (ValueError, ConfigError) as error:
            if self._is_named and isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{self._where}: {error}") from error

    def _unreadable(self, error: OSError) -> ConfigError:
        return ConfigError(f"{self._where}: cannot be read: {error.strerror or error}")
