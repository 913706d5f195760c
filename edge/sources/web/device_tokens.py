"""Tokens of devices: who shows one is that device. A file that may change while it is in use."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from edgewake.protocol.errors import ConfigError
from edgewake.protocol.maps.names import device_name

log = logging.getLogger("edgewake.source")

FILE_BYTES_MAX: Final = 1 << 20
"""Bytes of the file: some ten thousand devices."""


def parse(text: str, where: str) -> Mapping[str, str]:
    """Digest of a token → name of its device. Lines are `TOKEN NAME`. Raises ConfigError."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 2 or device_name(words[1]) != words[1]:
            raise ConfigError(f"{where}: line {number}: expected `TOKEN NAME`")
        found[_digest(words[0])] = words[1]
    return found


def _digest(token: str) -> str:
    """Looked up in place of the token: how long that takes tells nothing of it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class DeviceTokens:
    """Blocking."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError."""
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._names = self._read()

    def device_of(self, token: str) -> str:
        """The device whose token this is; empty: nobody's."""
        return self._names.get(_digest(token), "") if token else ""

    def look(self) -> None:
        """Read the file again where it changed. One that became wrong changes nothing."""
        try:
            found = self._path.stat()
            if (found.st_mtime_ns, found.st_size) != self._seen:
                self._names = self._read()
        except (OSError, ConfigError) as error:
            log.error("the tokens of before stay: %s", error, extra={"event": "tokens.refused"})

    def _read(self) -> Mapping[str, str]:
        try:
            found = self._path.stat()
            self._seen = (found.st_mtime_ns, found.st_size)
            with self._path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX + 1).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"tokens_file = {self._path}: {error}") from error
        if len(text) > FILE_BYTES_MAX:
            raise ConfigError(
                f"tokens_file = {self._path}: expected at most {FILE_BYTES_MAX} bytes"
            )
        return parse(text, f"tokens_file = {self._path}")
