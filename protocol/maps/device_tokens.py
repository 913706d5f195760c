"""Tokens of devices, in a file that may change while it is in use. A token identifies a device.

TOKEN NAME             is the device NAME, whatever the payload says
TOKEN NAME gateway     speaks for devices behind it: the payload names them
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.names import device_name

log = logging.getLogger("edgewake.tokens")

FILE_BYTES_MAX: Final = 1 << 20
"""The most bytes of the file, which is enough for some ten thousand devices."""
GATEWAY: Final = "gateway"
"""The word after the name of a device that may send for others."""


class Holder(NamedTuple):
    """The device that a token belongs to."""

    device: str
    is_gateway: bool = False
    """Whether it may send for devices behind it."""


def parse(text: str, where: str) -> Mapping[str, Holder]:
    """Parses lines `TOKEN NAME [gateway]` to digest → holder. Raises ConfigError."""
    found: dict[str, Holder] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        is_right = len(words) in (2, 3) and device_name(words[1]) == words[1]
        if not is_right or words[2:] not in ([], [GATEWAY]):
            raise ConfigError(f"{where}: line {number}: expected `TOKEN NAME` or `… {GATEWAY}`")
        found[_digest(words[0])] = Holder(words[1], len(words) == 3)
    return found


def _digest(token: str) -> str:
    """Hashes a token, so that the time of a look-up reveals nothing about it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class DeviceTokens:
    """Blocking."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises ConfigError."""
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._holders = self._read()
        self.devices = frozenset(one.device for one in self._holders.values())
        """Names of the devices that have a token."""

    @property
    def seen(self) -> object:
        """Returns the tokens read last, for comparison with a later value."""
        return self._seen

    def holder_of(self, token: str) -> Holder | None:
        """Returns the holder of a token; None where it is unknown."""
        return self._holders.get(_digest(token)) if token else None

    @property
    def holders(self) -> frozenset[Holder]:
        """Returns all holders."""
        return frozenset(self._holders.values())

    def look(self) -> bool:
        """Reads the file again if it changed; returns whether it did.

        A faulty one changes nothing.
        """
        try:
            found = self._path.stat()
            if (found.st_mtime_ns, found.st_size) != self._seen:
                self._holders = self._read()
                self.devices = frozenset(one.device for one in self._holders.values())
                return True
        except (OSError, ConfigError) as error:
            log.error("keeping the previous tokens: %s", error, extra={"event": "tokens.refused"})
        return False

    def _read(self) -> Mapping[str, Holder]:
        try:
            found = self._path.stat()
            with self._path.open("rb") as file:
                read = file.read(FILE_BYTES_MAX + 1)
            self._seen = (found.st_mtime_ns, found.st_size)
            text = read.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"tokens_file = {self._path}: {error}") from error
        if len(text) > FILE_BYTES_MAX:
            raise ConfigError(
                f"tokens_file = {self._path}: expected at most {FILE_BYTES_MAX} bytes"
            )
        return parse(text, f"tokens_file = {self._path}")
