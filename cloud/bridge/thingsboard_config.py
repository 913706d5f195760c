"""[thingsboard] of bridge.toml: devices and gateways of ThingsBoard, moved by their address."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from edgewake.cloud.client_share import SHARE_DEFAULT
from edgewake.protocol.config import Config


class ThingsBoardConfig(Config):
    """ThingsBoard's device and gateway API by MQTT 3.1.1 and 5 (docs/devices.md)."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than this machine's own needs `tokens_file`. TLS is a
    proxy's."""
    port: int | None = Field(default=None, ge=1, le=65_535)
    """TCP port; ThingsBoard's is 1883. None: nothing is taken this way."""
    tokens_file: Path | None = None
    """File of access tokens, mode 0600: lines `TOKEN NAME`, or `TOKEN NAME gateway` for one that
    speaks for devices behind it. Read again when it changes. None: whoever connects is the device
    that its user name says, and a gateway, too."""
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,31})?$")
    """Begins the names of devices behind gateways, as `maps.prefix` does."""
    connections_max: int = Field(default=2000, ge=1)
    """Connections at once; one more is closed."""
    address_share: float = Field(default=SHARE_DEFAULT, gt=0, le=1)
    """The part of them that one client address may hold."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            is_loopback = ipaddress.ip_address(self.host).is_loopback
        except ValueError as error:
            raise ValueError("host: expected an address") from error
        if not is_loopback and self.tokens_file is None:
            raise ValueError("host: who listens beyond this machine needs a tokens_file")
        return self
