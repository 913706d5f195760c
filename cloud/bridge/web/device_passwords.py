"""Passwords of devices at the bridge's door for HTTP: those that they have at the MQTT broker.

One file is right for both, so a device that is shut out is shut out at both.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edgewake.cloud import passwords
from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.device_tokens import Holder

log = logging.getLogger("edgewake.bridge.passwords")

FILE_BYTES_MAX: Final = 8 << 20
"""Bytes of the file: more than `passwords.DEVICES_MAX` lines of 200 each."""
PASSWORD_CHARS_MAX: Final = 128
"""Characters of a password that is looked at: ours have 32."""
NOBODY: Final = passwords.entry("", lambda count: b"\0" * count)
"""What a device that is not known is compared with, so that the time tells no names."""


class DevicePasswords:
    """Blocking."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError. A file that is not there yet lets nobody in."""
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        """What was read last: a file that cannot be opened is tried again, what is wrong in one is
        not read again."""
        self._failed = ""
        self._entries = self._read()

    @property
    def seen(self) -> object:
        """What was read last, as far as two of it can be compared."""
        return self._seen

    def knows(self, holder: Holder) -> bool:
        """Has it a password, whichever?"""
        return holder.device in self._entries

    def holder_of(self, name: str, password: str) -> Holder | None:
        """The device of that name, where the password is its own.

        One that is wrong may be new: a device that was let in a moment ago is known at once.
        """
        if not name or not 1 <= len(password) <= PASSWORD_CHARS_MAX:
            return None
        found = self._holder_of(name, password)
        if found is not None or not self.look():
            return found
        return self._holder_of(name, password)

    def _holder_of(self, name: str, password: str) -> Holder | None:
        said = self._entries.get(name)
        is_right = passwords.is_of(password, NOBODY if said is None else said)
        return Holder(name) if is_right and said is not None else None

    def look(self) -> bool:
        """Read the file again where it changed. One that became wrong changes nothing.

        Was it read?
        """
        try:
            if self._stamp() == self._seen:
                return False
            self._entries = self._read()
        except (OSError, ConfigError) as error:
            if str(error) != self._failed:  # once, however many passwords are tried meanwhile
                self._failed = str(error)
                text = "the passwords of before stay: %s"
                log.error(text, error, extra={"event": "passwords.refused"})
            return False
        self._failed = ""
        return True

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> Mapping[str, str]:
        try:
            stamp = self._stamp()
            if stamp is None:
                self._seen = None
                return {}
            with self._path.open("rb") as file:
                read = file.read(FILE_BYTES_MAX + 1)
            self._seen = stamp
            text = read.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"password_file = {self._path}: {error}") from error
        if len(text) > FILE_BYTES_MAX:
            raise ConfigError(
                f"password_file = {self._path}: expected at most {FILE_BYTES_MAX} bytes"
            )
        return passwords.parse(text)
