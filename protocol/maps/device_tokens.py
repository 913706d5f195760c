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
from edgewake.protocol.files.changing_file import ChangingFile
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


class Tokens(NamedTuple):
    """The tokens of a file."""

    holders: Mapping[str, Holder]
    """Digest of a token → its holder."""
    devices: frozenset[str]
    """Names of those who have a token."""


def parse(text: str) -> Tokens:
    """Parses lines `TOKEN NAME [gateway]`. Raises ConfigError."""
    found: dict[str, Holder] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        is_right = len(words) in (2, 3) and device_name(words[1]) == words[1]
        if not is_right or words[2:] not in ([], [GATEWAY]):
            raise ConfigError(f"line {number}: expected `TOKEN NAME` or `… {GATEWAY}`")
        found[_digest(words[0])] = Holder(words[1], len(words) == 3)
    return Tokens(found, frozenset(one.device for one in found.values()))


def _digest(token: str) -> str:
    """Hashes a token, so that the time of a look-up reveals nothing about it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class DeviceTokens(ChangingFile[Tokens]):
    """Blocking."""

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises ConfigError."""
        super().__init__(
            path,
            parse,
            what="tokens",
            log=log,
            event="tokens.refused",
            key="tokens_file",
            bytes_max=FILE_BYTES_MAX,
        )

    def holder_of(self, token: str) -> Holder | None:
        """Returns the holder of a token; None where it is unknown."""
        return self.value.holders.get(_digest(token)) if token else None

    @property
    def holders(self) -> frozenset[Holder]:
        """Returns all holders."""
        return frozenset(self.value.holders.values())

    @property
    def devices(self) -> frozenset[str]:
        """Returns the names of the devices that have a token."""
        return self.value.devices
