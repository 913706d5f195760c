"""[http] and [thingsboard] of bridge.toml: what devices and programs send to a bridge itself."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Final, Self

from pydantic import Field, model_validator

from edgewake.cloud.client_share import SHARE_DEFAULT, NetworkText
from edgewake.protocol.config import Config
from edgewake.protocol.frames.frame import FRAME_BYTES_MAX
from edgewake.protocol.maps.http_forms import PRESETS

ENROL_PATTERN: Final = r"^https?://[^\s/]+/?$"


class HttpConfig(Config):
    """The address on which a bridge listens, and the clients it accepts (docs/devices.md)."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than this machine's own needs `tokens_file` or
    `password_file`. TLS is a proxy's."""
    also_hosts: tuple[str, ...] = Field(default=(), max_length=8)
    """More addresses to listen on, e.g. of the local network: ["192.168.1.5"]."""
    also_cert_file: Path | None = None
    """PEM of the certificate that is shown at `also_hosts`, which are encrypted then."""
    also_key_file: Path | None = None
    """PEM of its key."""
    also_client_ca_file: Path | None = None
    """PEM of the authority that signs certificates of devices: who shows one at `also_hosts` is
    the device of its common name, and needs no token or password. Needs `certificates_file`."""
    certificates_file: Path | None = None
    """File in which the operations API keeps which device has which certificate
    (`certificates.json` beside its `password_file`): one that was taken back is refused. Read again
    when it changes."""
    local: bool = False
    """Is nobody of this machine itself asked who he is, who sends to a loopback address? Not where
    a proxy on this machine passes on what others send."""
    port: int | None = Field(default=None, ge=1, le=65_535)
    """TCP port; none: nothing is taken by HTTP."""
    presets: tuple[str, ...] = ("all",)
    """Presets whose maps read what comes, if no `file` is given (`edgewake map presets` lists
    them). `all` stands for the six of clients that send by HTTP: `influx`, `otlp`, `cloudevents`,
    `senml`, `owntracks`, `thingsboard`."""
    file: Path | None = None
    """Map file, in place of `presets`; a request's path is its topic. Read again when it
    changes."""
    zone: str = "UTC"
    """Zone of times that do not say theirs, e.g. `Europe/Berlin`."""
    tokens_file: Path | None = None
    """File of tokens of devices, mode 0600: lines `TOKEN NAME`. Who shows a token is that device;
    with `gateway` behind the name it speaks for devices that its payloads name. Read again when it
    changes. None: nobody is asked for one."""
    password_file: Path | None = None
    """Passwords of devices, as the MQTT broker reads them (`password_file` of ops.toml): a device
    shows name and password, by HTTP Basic, or as `NAME:PASSWORD` where its client has one word for
    a token. Read again when it changes."""
    enrol_url: str | None = Field(default=None, pattern=ENROL_PATTERN)
    """Address of the operations API, e.g. `http://127.0.0.1:8702`: devices that ask for a token
    (ThingsBoard's provisioning) have it by a claim code. Needs `password_file`."""
    enrol_ca_file: Path | None = None
    """PEM of the authorities that may sign its certificate. None: the system's."""
    prefix: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,31})?$")
    """Begins the names of devices that payloads give, as `maps.prefix` does."""
    body_bytes_max: int = Field(default=FRAME_BYTES_MAX, ge=1024, le=16 << 20)
    """Bytes of a request's body, also when it is unpacked; a longer one is answered 413."""
    bodies_bytes_max: int = Field(default=64 << 20, ge=1 << 20)
    """Bytes of all requests' bodies that are held at once; one more is answered 503."""
    connections_max: int = Field(default=2000, ge=1)
    """Connections at once; one more is answered 503."""
    address_share: float = Field(default=SHARE_DEFAULT, gt=0, le=1)
    """The part of the two bounds above that one client address may hold."""
    trusted_proxies: tuple[NetworkText, ...] = ()
    """Proxies in front, e.g. ["10.0.0.0/8"]: only they may name the client in X-Forwarded-For."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key, hosts in (("host", (self.host,)), ("also_hosts", self.also_hosts)):
            self._check_hosts(key, hosts)
        if self.local and self.trusted_proxies:
            raise ValueError("local: a proxy asks for others, too: expected no trusted_proxies")
        if self.enrol_url is not None and self.password_file is None:
            raise ValueError("enrol_url: expected the password_file that the operations API keeps")
        if (self.also_client_ca_file is None) != (self.certificates_file is None):
            raise ValueError("also_client_ca_file and certificates_file belong together")
        if self.also_client_ca_file is not None and self.also_cert_file is None:
            raise ValueError("also_client_ca_file: expected also_cert_file, for TLS")
        if self.file is not None and "presets" in self.model_fields_set:
            raise ValueError("expected `presets` or `file`; a map file names its own presets")
        return self

    def _check_hosts(self, key: str, hosts: tuple[str, ...]) -> None:
        try:
            is_near = all(ipaddress.ip_address(one).is_loopback for one in hosts)
        except ValueError as error:
            raise ValueError(f"{key}: expected an address") from error
        if not is_near and self.tokens_file is None and self.password_file is None:
            raise ValueError(
                f"{key}: to listen beyond this machine set tokens_file or password_file"
            )

    @property
    def map_presets(self) -> tuple[str, ...]:
        """Their names; none where there is a file."""
        if self.file is not None:
            return ()
        return PRESETS if self.presets == ("all",) else self.presets


class ThingsBoardConfig(Config):
    """ThingsBoard's device and gateway API by MQTT 3.1.1 and 5 (docs/devices/thingsboard.md)."""

    host: str = "127.0.0.1"
    """Address to listen on. Any other than this machine's own needs `tokens_file` or
    `password_file`."""
    port: int | None = Field(default=None, ge=1, le=65_535)
    """TCP port; ThingsBoard's is 1883, and 8883 with TLS. None: nothing is taken this way."""
    cert_file: Path | None = None
    """PEM of the certificate that is shown, with TLS. None: nothing is encrypted, or a proxy in
    front does it."""
    key_file: Path | None = None
    """PEM of its key."""
    tokens_file: Path | None = None
    """File of access tokens, mode 0600: lines `TOKEN NAME`, or `TOKEN NAME gateway` for one that
    speaks for devices behind it. Read again when it changes. None: whoever connects is the device
    that its user name says, and a gateway, too."""
    password_file: Path | None = None
    """Passwords of devices, as the MQTT broker reads them (`password_file` of ops.toml): a device's
    token is `NAME:PASSWORD`, or it shows both. Read again when it changes."""
    enrol_url: str | None = Field(default=None, pattern=ENROL_PATTERN)
    """Address of the operations API, e.g. `http://127.0.0.1:8702`, where devices that ask for a
    token (ThingsBoard's provisioning) have it by a claim code. Needs `password_file`."""
    enrol_ca_file: Path | None = None
    """PEM of the authorities that may sign its certificate. None: the system's."""
    firmware_dir: Path | None = None
    """Folder of firmware and software for devices, by MQTT and by HTTP (`[http]`):
    `TITLE/VERSION` is a file. Read again when it changes."""
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
        if not is_loopback and self.tokens_file is None and self.password_file is None:
            raise ValueError(
                "host: who listens beyond this machine needs a tokens_file or a password_file"
            )
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together")
        if self.enrol_url is not None and self.password_file is None:
            raise ValueError("enrol_url: expected the password_file that the operations API keeps")
        return self
