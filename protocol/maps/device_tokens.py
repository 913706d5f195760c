"""Tokens of devices: who shows one is that device. A file that may change while it is in use.

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
"""Bytes of the file: some ten thousand devices."""
GATEWAY: Final = "gateway"
"""The word behind the name of a device that may name others."""


class Holder(NamedTuple):
    """The holder of a token."""

    device: str
    is_gateway: bool = False
    """May it name devices behind it?"""


def parse(text: str, where: str) -> Mapping[str, Holder]:
    """Digest of a token → its holder. Lines are `TOKEN NAME [gateway]`. Raises ConfigError."""
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
    """Looked up in place of the token: how long that takes tells nothing of it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class DeviceTokens:
    """Blocking."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError."""
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._holders = self._read()
        self.devices = frozenset(one.device for one in self._holders.values())
        """Names of those who have a token."""

    @property
    def seen(self) -> object:
        """What was read last, as far as two of it can be compared."""
        return self._seen

    def holder_of(self, token: str) -> Holder | None:
        """The holder of this token; None: nobody."""
        return self._holders.get(_digest(token)) if token else None

    @property
    def holders(self) -> frozenset[Holder]:
        """Who has a token."""
        return frozenset(self._holders.values())

    def look(self) -> bool:
        """Read the file again where it changed; did it? One that became wrong changes nothing."""
        try:
            found = self._path.stat()
            if (found.st_mtime_ns, found.st_size) != self._seen:
                self._holders = self._read()
                self.devices = frozenset(one.device for one in self._holders.values())
                return True
        except (OSError, ConfigError) as error:
            log.error("the tokens of before stay: %s", error, extra={"event": "tokens.refused"})
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
