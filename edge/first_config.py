"""The first configuration of a device: what has to be said, and in comments what may be. Pure, but for writing the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import orjson

from edgewake.protocol.errors import LocalError

SOURCES: Final[Mapping[str, str]] = {
    "host_metrics": 'stream = "host_metrics"\ninterval_s = 5  # seconds between readings',
    "json_lines": 'stream = "lines"  # one JSON object a line on standard input',
    "file_tail": 'stream = "lines"\npath = "/var/log/readings.jsonl"\nformat = "json"  # or text, nmea, gpsd',
    "serial_lines": 'stream = "gps"\npath = "/dev/ttyUSB0"\nformat = "nmea"\nbaud = 4800',
    "tcp_lines": 'stream = "position"\nhost = "127.0.0.1"\nport = 2947\nformat = "gpsd"',
    "mqtt_subscribe": 'stream = "home"\ntopic = "home/{room}/{kind}"  # {room} becomes a field',
    "http_intake": 'stream = "posted"\nport = 8099  # POST http://127.0.0.1:8099/',
    "http_poll": 'stream = "polled"\nurl = "http://127.0.0.1:8000/now"\ninterval_s = 60',
    "sse_pull": 'stream = "events"\nurl = "http://127.0.0.1:8000/events"',
    "websocket_pull": 'stream = "messages"\nurl = "ws://127.0.0.1:8000/feed"',
    "modbus_tcp": 'stream = "meter"\nhost = "192.0.2.7"\npoint = [{ name = "power_w", address = 0, type = "int32" }]',
    "subscription": 'stream = "of_others"\nfollow = ["vehicle_position"]',
}
"""Kind → what its table begins with."""


def configuration_text(device: str, broker: str, data_dir: str, sources: Sequence[str]) -> str:
    """A commented configuration. Raises LocalError for an address or a kind that is none."""
    host, _, port = broker.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal()):
        raise LocalError(f"broker {broker!r}: expected host:port")
    if not data_dir:
        raise LocalError("data-dir: expected a directory")
    unknown = [kind for kind in sources if kind not in SOURCES]
    if unknown:
        raise LocalError(f"source {unknown[0]!r}: expected one of {', '.join(SOURCES)}")
    tables = "\n\n".join(f'[[source]]\ntype = "{kind}"\n{SOURCES[kind]}' for kind in sources)
    return f"""# Configuration of an Edgewake agent. Every key with its meaning: docs/agent.md; sources: docs/sources.md.

device = {_quoted(device)}  # MQTT client id and first level of all topics
data_dir = {_quoted(data_dir)}  # the log; for this agent alone

[mqtt]
host = {_quoted(host)}
port = {port}
# With TLS and a certificate of its own:
# ca_file = "/etc/edgewake/ca.pem"
# cert_file = "/etc/edgewake/device.pem"
# key_file = "/etc/edgewake/device.key"

[log]
# mode = "hml"  # when a reading is logged: docs/logging.md
# quota_bytes = 268435456  # what may wait while the device is offline

[uplink]
# qos = 0  # fewer bytes and packets; the cloud's acknowledgement is what counts

{tables}
"""


def _quoted(text: str) -> str:
    """As a string of TOML, which takes those of JSON."""
    return orjson.dumps(text).decode()


def write_new(path: Path, text: str, *, replace: bool) -> None:
    """Write it, mode 0600, when it can be used. Raises ConfigError, LocalError where a file is there."""
    import tomllib

    from edgewake.edge.config import AgentConfig
    from edgewake.protocol.config import parse

    if path.exists() and not replace:
        raise LocalError(f"{path} is there already; --force writes over it")
    parse(AgentConfig, tomllib.loads(text), str(path))
    fresh = path.with_name(path.name + ".new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        fresh.replace(path)
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error
    finally:
        fresh.unlink(missing_ok=True)
