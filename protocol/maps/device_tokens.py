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
from edgewake.protocol.files.changing_file import ChangingFile
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


class Tokens(NamedTuple):
    """The tokens of a file."""

    holders: Mapping[str, Holder]
    """Digest of a token → its holder."""
    devices: frozenset[str]
    """Names of those who have a token."""


def parse(text: str) -> Tokens:
    """The tokens of a file. Its lines are `TOKEN NAME [gateway]`. Raises ConfigError."""
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
    """Looked up in place of the token: how long that takes tells nothing of it."""
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


class DeviceTokens(ChangingFile[Tokens]):
    """Blocking."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError."""
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
        """The holder of this token; None: nobody."""
        return self.value.holders.get(_digest(token)) if token else None

    @property
    def holders(self) -> frozenset[Holder]:
        """Who has a token."""
        return frozenset(self.value.holders.values())

    @property
    def devices(self) -> frozenset[str]:
        """Names of those who have a token."""
        return self.value.devices
