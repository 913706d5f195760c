"""Passwords of devices at the bridge's door for HTTP: those that they have at the MQTT broker.

One file is right for both, so a device that is shut out is shut out at both.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edgewake.cloud import passwords
from edgewake.protocol.files.changing_file import ChangingFile
from edgewake.protocol.maps.device_tokens import Holder

FILE_BYTES_MAX: Final = 8 << 20
"""Bytes of the file: more than `passwords.DEVICES_MAX` lines of 200 each."""
PASSWORD_CHARS_MAX: Final = 128
"""Characters of a password that is looked at: ours have 32."""
NOBODY: Final = passwords.entry("", lambda count: b"\0" * count)
"""What a device that is not known is compared with, so that the time tells no names."""


class DevicePasswords(ChangingFile[Mapping[str, str]]):
    """Blocking."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError. A file that is not there yet lets nobody in."""
        super().__init__(
            path,
            passwords.parse,
            what="passwords",
            log=logging.getLogger("edgewake.bridge.passwords"),
            event="passwords.refused",
            key="password_file",
            bytes_max=FILE_BYTES_MAX,
            may_be_missing=True,
        )

    def knows(self, holder: Holder) -> bool:
        """Has it a password, whichever?"""
        return holder.device in self.value

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
        said = self.value.get(name)
        is_right = passwords.is_of(password, NOBODY if said is None else said)
        return Holder(name) if is_right and said is not None else None
