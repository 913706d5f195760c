"""The first configuration of a device: what has to be said, and in comments what may be.

Pure, but for writing the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from edgewake.edge import durable_file
from edgewake.protocol.errors import LocalError

SOURCES: Final[Mapping[str, str]] = {
    "host_metrics": 'stream = "host_metrics"\ninterval_s = 5  # seconds between readings',
    "json_lines": 'stream = "lines"  # one JSON object a line on standard input',
    "file_tail": (
        'stream = "lines"\npath = "/var/log/readings.jsonl"\nformat = "json"  # or text, nmea, gpsd'
    ),
    "serial_lines": 'stream = "gps"\npath = "/dev/ttyUSB0"\nformat = "nmea"\nbaud = 4800',
    "tcp_lines": 'stream = "position"\nhost = "127.0.0.1"\nport = 2947\nformat = "gpsd"',
    "mqtt_subscribe": 'stream = "home"\ntopic = "home/{room}/{kind}"  # {room} becomes a field',
    "http_intake": 'stream = "posted"\nport = 8099  # POST http://127.0.0.1:8099/',
    "http_poll": 'stream = "polled"\nurl = "http://127.0.0.1:8000/now"\ninterval_s = 60',
    "sse_pull": 'stream = "events"\nurl = "http://127.0.0.1:8000/events"',
    "websocket_pull": 'stream = "messages"\nurl = "ws://127.0.0.1:8000/feed"',
    "modbus_tcp": (
        'stream = "meter"\nhost = "192.0.2.7"\npoint = [{ name = "power_w", address = 0, type = '
        '"int32" }]'
    ),
    "modbus_rtu": (
        'stream = "meter"\npath = "/dev/ttyUSB0"\npoint = [{ name = "power_w", address = 0, type = '
        '"int32" }]'
    ),
    "udp_lines": 'stream = "points"\nport = 8089  # datagrams of line protocol',
    "exec": 'stream = "measured"\ncommand = ["/usr/local/bin/measure"]\ninterval_s = 60',
    "kernel_sensors": 'stream = "board"  # hwmon, iio, 1-Wire',
    "http_lines": 'stream = "lines"\nurl = "http://127.0.0.1:8000/stream"',
    "sparkplug": 'stream = "plant"\nhost_id = "edgewake"',
    "opcua": (
        'stream = "plc"\nurl = "opc.tcp://127.0.0.1:4840/"\nnode = [{ name = "temperature", id = '
        '"ns=2;s=Boiler.Temperature" }]'
    ),
    "ble": 'stream = "rooms"  # Ruuvi, BTHome, Xiaomi',
    "can": 'stream = "car"\nchannel = "can0"\nobd = ["rpm", "speed"]  # or dbc = "drive.dbc"',
    "subscription": 'stream = "of_others"\nfollow = ["vehicle_position"]',
}
"""Kind → what its table begins with."""
PORT_DIGITS_MAX: Final = 9
"""The most digits of a port. More are not a port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Files that the device proves itself with at the broker; empty for what it does not have."""

    password_file: str = ""
    """Password file of the user named like the device."""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    def text(self, device: str) -> str:
        """The lines of `[mqtt]` for this broker."""
        user = f"username = {_quoted(device)}\n" if self.password_file else ""
        files = (
            ("password_file", self.password_file),
            ("ca_file", self.ca_file),
            ("cert_file", self.cert_file),
            ("key_file", self.key_file),
        )
        return user + "".join(f"{name} = {_quoted(path)}\n" for name, path in files if path)


NO_LOGIN: Final = Login()
_TLS: Final = """# With TLS and a certificate of its own:
# ca_file = "/etc/edgewake/ca.pem"
# cert_file = "/etc/edgewake/device.pem"
# key_file = "/etc/edgewake/device.key"
"""


def configuration_text(
    device: str,
    broker: str,
    data_dir: str,
    sources: Sequence[str],
    *,
    tables: str | None = None,
    login: Login = NO_LOGIN,
) -> str:
    """A commented configuration.

    `tables`: its sources as text, in place of `sources` by their kinds. Raises LocalError for a
    wrong address or an unknown kind.
    """
    host, _, port = broker.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal() and len(port) <= PORT_DIGITS_MAX):
        raise LocalError(f"broker {broker!r}: expected host:port")
    if not data_dir:
        raise LocalError("data-dir: expected a directory")
    for name, said in (("device", device), ("broker", broker), ("data-dir", data_dir)):
        if not said.isprintable():
            raise LocalError(f"{name} {said!r}: expected characters that can be seen")
    unknown = [kind for kind in sources if kind not in SOURCES]
    if unknown:
        raise LocalError(f"source {unknown[0]!r}: expected one of {', '.join(SOURCES)}")
    if tables is None:
        tables = "\n\n".join(f'[[source]]\ntype = "{kind}"\n{SOURCES[kind]}' for kind in sources)
    tls = "" if login.ca_file else _TLS
    return f"""# Configuration of an Edgewake agent.
# Every key with its meaning: docs/agent.md; sources: docs/sources.md.

device = {_quoted(device)}  # MQTT client id and first level of all topics
data_dir = {_quoted(data_dir)}  # the log; for this agent alone

[mqtt]
host = {_quoted(host)}
port = {int(port)}
{login.text(device)}{tls}
[log]
# mode = "hml"  # when a reading is logged: docs/logging.md
# quota_bytes = 268435456  # what may wait while the device is offline

[uplink]
# qos = 0  # fewer bytes and packets; the cloud's acknowledgement is what counts

{tables}
"""


def _quoted(text: str) -> str:
    """Quote a string for TOML, which accepts JSON's strings."""
    return orjson.dumps(text).decode()


def write_new(path: Path, text: str, *, replace: bool) -> None:
    """Write it durably, mode 0600, when it can be used.

    Raises ConfigError, LocalError where a file is there or cannot be written.
    """
    from edgewake.edge.config import AgentConfig
    from edgewake.protocol.config import parse, values_of

    parse(AgentConfig, values_of(text, str(path)), str(path))
    try:
        if os.path.lexists(path) and not replace:
            raise LocalError(f"{path} exists already; --force overwrites it")
        durable_file.replace(path, text.encode())
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error
