"""Finds or installs Mosquitto and writes its configuration for the demo.

On the loopback anyone may connect, and on an address of the network only with a password.

Production has its own file, `deploy/mosquitto/production.conf`, with certificates and access rules.
Raises LocalError.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edgewake.deploy.authority import AuthorityFiles
from edgewake.deploy.programs import apt, program_version
from edgewake.protocol.errors import LocalError
from edgewake.protocol.mqtt import PACKET_BYTES_MAX

QUEUED_MESSAGES_MAX: Final = 1_000_000
"""Messages kept for a bridge that is away. Not 0 ("unlimited"): 2.0.2 and 2.0.16 drop everything
then (#1956, #2879)."""
QUEUED_BYTES_MAX: Final = 128 << 20
"""Bytes kept for a bridge that is away. Over it Mosquitto drops what it already confirmed by PUBACK
and counts it on $SYS; nothing in `ack` mode is lost by that, because a device keeps its frame until
the end-to-end acknowledgement."""
NETWORK_CONNECTIONS_MAX: Final = 1_000
"""Devices of the network that are connected at the same time; one more is refused."""
AUTOSAVE_S: Final = 10
"""Seconds between snapshots of sessions and queues (the default is 30 minutes). No PUBACK depends
on it."""
_SBIN: Final = "/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """Where one Mosquitto runs and keeps its sessions."""

    program: Path
    directory: Path
    port: int
    host: str = "127.0.0.1"
    network: str = ""
    """Address of the local network to listen on, too; empty: none."""
    password_file: Path = Path("passwords")
    """Who may come in there: written by the operations API."""
    authority: AuthorityFiles | None = None
    """What encrypts there; None: nothing is."""
    certificate_port: int = 0
    """Where devices with a certificate of that authority come in."""
    mapped: tuple[str, ...] = ()
    """Topics of maps, which every device of the network may write to."""


def find(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The first `mosquitto` of version 2 or newer on PATH or where Debian puts it.

    Raises LocalError where it tells no version.
    """
    found = shutil.which("mosquitto", path=f"{environ.get('PATH', '')}:{_SBIN}")
    return Path(found) if found and version(Path(found)) >= (2,) else None


def ensure(environ: Mapping[str, str] = os.environ, *, may_install: bool | None = None) -> Path:
    """`find`, else install Debian's package. Raises LocalError."""
    if program := find(environ):
        return program
    apt.install(("mosquitto",), what="Mosquitto 2 or newer", may_install=may_install)
    if program := find(environ):
        return program
    raise LocalError(
        "Mosquitto was installed but no version 2 or newer is found on PATH or in /usr/sbin"
    )


def version(program: Path) -> tuple[int, ...]:
    """E.g. (2, 0, 11). Raises LocalError where it tells none, with what it says."""
    answered = program_version.answer(program, "-h")
    found = re.search(r"mosquitto version (\d+)\.(\d+)\.(\d+)", answered)
    if found is None:
        raise program_version.unclear(program, "-h", answered, "Mosquitto 2 or newer")
    return tuple(map(int, found.groups()))


def configuration(broker: Broker, *, is_root: bool) -> str:
    """The text of mosquitto.conf."""
    lines = [
        "# Written by `edgewake up`. deploy/mosquitto/production.conf is the one for many users.",
        "per_listener_settings true",
        f"max_packet_size {PACKET_BYTES_MAX}",
        # No limit of the broker's own: each client's receive maximum bounds what is in flight to
        # it.
        "max_inflight_messages 0",
        f"max_queued_messages {QUEUED_MESSAGES_MAX}",
        f"max_queued_bytes {QUEUED_BYTES_MAX}",
        "persistence true",
        f"persistence_location {broker.directory}/",
        f"autosave_interval {AUTOSAVE_S}",
        "persistent_client_expiration 7d",
        "connection_messages false",
        "log_dest stderr",
        "log_type error",
        "log_type warning",
        "log_type notice",
        f"listener {broker.port} {broker.host}",
        "allow_anonymous true",
    ]
    if broker.network:
        lines += _network(broker)
    # Started by root it would become the user mosquitto, who may not write into the data folder.
    return "\n".join([*lines, *(["user root"] if is_root else [])]) + "\n"


def _network(broker: Broker) -> list[str]:
    """The listeners of the local network: for passwords, and where encrypted for certificates."""
    common = [
        "allow_anonymous false",
        # The name is the client id, too: nobody ends another's session, nor a bridge's.
        "use_username_as_clientid true",
        f"max_connections {NETWORK_CONNECTIONS_MAX}",
        f"acl_file {_rules(broker)}",
    ]
    lines = [
        f"listener {broker.port} {broker.network}",
        *common,
        f"password_file {broker.password_file}",
    ]
    files = broker.authority
    if files is None:
        return lines
    tls = [
        f"certfile {files.server_certificate}",
        f"keyfile {files.server_key}",
        "tls_version tlsv1.2",
    ]
    return [
        *lines,
        *tls,
        f"listener {broker.certificate_port} {broker.network}",
        *common,
        *tls,
        f"cafile {files.certificate}",
        f"crlfile {files.revoked}",
        # The common name of the certificate is the user.
        "require_certificate true",
        "use_identity_as_username true",
    ]


def prepare(broker: Broker) -> None:
    """Write the configuration. Raises LocalError."""
    try:
        broker.directory.mkdir(parents=True, exist_ok=True)
        if broker.network:
            _rules(broker).write_text(rules(broker), "utf-8")
            broker.password_file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Mosquitto does not start without it, and nobody may have a password yet.
            broker.password_file.touch(0o600)
        _file(broker).write_text(configuration(broker, is_root=os.geteuid() == 0), "utf-8")
    except OSError as error:
        raise LocalError(f"{broker.directory}: {error.strerror}") from error


def command(broker: Broker) -> list[str]:
    """The arguments that run it in the foreground; it ends cleanly on SIGTERM."""
    return [str(broker.program), "-c", str(_file(broker))]


def _rules(broker: Broker) -> Path:
    return broker.directory / "devices.acl"


def rules(broker: Broker) -> str:
    """What a device of the network may touch: as in production, and topics of maps."""
    own = (Path(__file__).parents[1] / "mosquitto" / "devices.acl").read_text("utf-8")
    return own + "".join(f"pattern write {topic}\n" for topic in broker.mapped)


def _file(broker: Broker) -> Path:
    return broker.directory / "mosquitto.conf"
