"""The demo on one machine as values: which parts on which ports, with which configuration files.

Nothing is written or started here.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mqtt5

from edgewake.deploy.authority import AuthorityFiles
from edgewake.deploy.parts.part import Floor, Part
from edgewake.protocol.certificates.book import FILE as BOOK
from edgewake.protocol.errors import ConfigError

SERVICES: Final = (
    "mosquitto",
    "kafka",
    "bridge",
    "sequencer",
    "analysis",
    "lake",
    "access",
    "push",
    "ops",
    "agent",
    "simulators",
    "ledger",
)
"""What --only may name; a numbered part, e.g. access-2, may be named as well."""
ACCESS_SERVERS_MAX: Final = 8
HOST_ID: Final = "edgewake"
"""What the host application of Sparkplug B calls itself."""
PREFIX: Final = "home-"
"""How names of devices begin that maps make: no device with a password is called so."""
VEHICLES: Final = 20
LINKS: Final = ("devices", "bridge", "readers")
"""Ways between parts that --faults can cut: devices to the broker, bridge to the broker, a reader
to its access server."""
_THRIFTY: Final = {"MALLOC_ARENA_MAX": "2", "PYTHONUNBUFFERED": "1"}
"""glibc gives each thread an arena of its own; two are enough here and save 10 to 30 MiB in each
part that has threads."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of the parts, all from one base."""

    base: int

    def access(self, index: int) -> int:
        """The port of the index-th access server, from 0: base, base + 1, then base + 4 and on."""
        return self.base + (index if index < 2 else index + 2)

    @property
    def ops(self) -> int:
        return self.base + 2

    @property
    def push(self) -> int:
        return self.base + 3

    @property
    def mqtt(self) -> int:
        return self.base + 10

    @property
    def mqtt_certificates(self) -> int:
        """The broker's port for devices with a certificate."""
        return self.base + 11

    @property
    def http(self) -> int:
        """The bridge's port for devices that send by HTTP."""
        return self.base + 12

    @property
    def thingsboard(self) -> int:
        """The bridge's port for what speaks ThingsBoard's MQTT API, on the network alone."""
        return self.base + 13

    @property
    def kafka(self) -> int:
        return self.base + 20

    @property
    def kafka_controller(self) -> int:
        return self.base + 21

    def link(self, name: str) -> int:
        """The port by which a link of --faults is entered."""
        return self.base + 40 + LINKS.index(name)

    @property
    def faults(self) -> int:
        """Where the operations API asks for faults."""
        return self.base + 49

    def metrics(self, service: str) -> int:
        """The port of the parts that serve nothing else."""
        return self.base + 30 + ("bridge", "sequencer", "analysis", "lake").index(service)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to run. `only` is empty for everything."""

    data: Path
    ports: Ports
    access_servers: int = 1
    simulators: bool = True
    only: frozenset[str] = frozenset()
    device: str = "this-machine"
    presets: tuple[str, ...] = ()
    """Maps that the bridge reads devices' own topics with."""
    sparkplug: bool = False
    """Is the bridge the host application of nodes of Sparkplug B?"""
    listen: str = ""
    """Address of this machine in the local network, where broker, page, push and the operations API
    are open to who has a password or a key; empty: loopback only."""
    plain: bool = False
    """Is nothing encrypted there?"""
    faults: bool = False
    """May a page kill parts and cut links, while a ledger counts?"""

    @property
    def names(self) -> tuple[str, ...]:
        """The parts, in the order in which they are started."""
        accesses = [f"access-{i + 1}" for i in range(self.access_servers)]
        names = [
            "mosquitto",
            "kafka",
            "bridge-1",
            "sequencer-1",
            "analysis",
            "lake",
            *accesses,
            "push-1",
            "ops",
            "agent",
            "simulators",
            "ledger",
        ]
        return tuple(name for name in names if self._is_wanted(name))

    @property
    def config_dir(self) -> Path:
        """Where the configuration files go."""
        return self.data / "config"

    @property
    def logs(self) -> Path:
        """Where the parts' output goes."""
        return self.data / "logs"

    @property
    def cursor_key_file(self) -> Path:
        """Keys that sign cursors."""
        return self.data / "secrets" / "cursor.key"

    @property
    def lease_key_file(self) -> Path:
        """Keys that endpoints of leases are encrypted with."""
        return self.data / "secrets" / "lease.key"

    @property
    def seal_key_file(self) -> Path:
        """Keys that addresses of alerts' destinations are encrypted with."""
        return self.data / "secrets" / "seal.key"

    @property
    def share_key_file(self) -> Path:
        """The key that makes the name under which bridges share messages."""
        return self.data / "secrets" / "share.key"

    @property
    def ops_key_file(self) -> Path:
        """The key of the operations API."""
        return self.data / "secrets" / "ops.key"

    @property
    def reader_key_file(self) -> Path:
        """The key that reads over the network."""
        return self.data / "secrets" / "reader.key"

    @property
    def readers_file(self) -> Path:
        """The readers' keys, in the form that the access servers and the push proxy read."""
        return self.data / "secrets" / "readers.keys"

    @property
    def faults_key_file(self) -> Path:
        """The key with which the operations API asks for faults."""
        return self.data / "secrets" / "faults.key"

    @property
    def verdict_file(self) -> Path:
        """Where the ledger writes how it stands."""
        return self.data / "ledger.json"

    def mqtt_of(self, link: str) -> int:
        """The broker's port for who comes by this link."""
        return self.ports.link(link) if self.faults else self.ports.mqtt

    @property
    def password_file(self) -> Path:
        """Passwords of devices, as the broker reads them."""
        return self.data / "credentials" / "passwords"

    @property
    def authority(self) -> AuthorityFiles:
        """Who signs the certificates of servers and devices."""
        return AuthorityFiles(self.data / "authority")

    @property
    def book_file(self) -> Path:
        """Which device has which certificate, as the operations API writes it."""
        return self.password_file.with_name(BOOK)

    @property
    def encrypted(self) -> bool:
        """Is there a network, and is it encrypted?"""
        return bool(self.listen) and not self.plain

    @property
    def first_device_file(self) -> Path:
        """The password of the device that is made at the first start with --listen."""
        return self.data / "secrets" / "first-device.password"

    def has(self, service: str) -> bool:
        """Does a part of this service run?"""
        return any(_service_of(name) == service for name in self.names)

    def _is_wanted(self, name: str) -> bool:
        if name == "simulators" and not self.simulators:
            return False
        if name == "ledger" and not self.faults:
            return False
        return not self.only or bool({name, _service_of(name)} & self.only)


def check(plan: Plan) -> None:
    """Raises ConfigError for names that are not parts."""
    whole = Plan(data=plan.data, ports=plan.ports, access_servers=plan.access_servers)
    known = {*SERVICES, *whole.names}
    if unknown := sorted(plan.only - known):
        raise ConfigError(f"--only {unknown[0]}: no such part; known are {', '.join(SERVICES)}")
    if not plan.names:
        raise ConfigError("no part is left to start: name more in --only")


def _service_of(name: str) -> str:
    service, dash, number = name.rpartition("-")
    return service if dash and number.isdigit() else name


def ports_wanted(plan: Plan) -> Mapping[int, str]:
    """Each port that will be opened, and the part that opens it."""
    ports = plan.ports
    fixed = {
        "mosquitto": [ports.mqtt],
        "kafka": [ports.kafka, ports.kafka_controller],
        "bridge-1": [ports.http, ports.metrics("bridge")],
        "sequencer-1": [ports.metrics("sequencer")],
        "analysis": [ports.metrics("analysis")],
        "lake": [ports.metrics("lake")],
        "push-1": [ports.push],
        "ops": [ports.ops],
        "ledger": [*map(ports.link, LINKS), ports.faults],
    } | {f"access-{i + 1}": [ports.access(i)] for i in range(plan.access_servers)}
    return {port: name for name in plan.names for port in fixed.get(name, [])}


def network_ports(plan: Plan) -> Mapping[int, str]:
    """Port → part, of the ports that the local network reaches."""
    open_parts = ("mosquitto", "bridge", "access", "push", "ops")
    found = {
        port: name
        for port, name in ports_wanted(plan).items()
        if _service_of(name) in open_parts and port != plan.ports.metrics("bridge")
    }
    if plan.encrypted and plan.has("mosquitto"):
        found[plan.ports.mqtt_certificates] = "mosquitto"
    if plan.has("bridge-1"):
        found[plan.ports.thingsboard] = "bridge-1"
    return found


def configs(plan: Plan, spark_jars: Path | None) -> Mapping[str, Mapping[str, Any]]:
    """The configuration of each of our parts by part name."""
    ports = plan.ports
    kafka: Mapping[str, Any] = {"bootstrap": f"127.0.0.1:{ports.kafka}"}
    accesses = [f"http://127.0.0.1:{ports.access(i)}" for i in range(plan.access_servers)]
    all_of_them: dict[str, Mapping[str, Any]] = {
        "bridge-1": _bridge_config(plan, kafka, accesses),
        "sequencer-1": {
            "name": "sequencer-1",
            "metrics_port": ports.metrics("sequencer"),
            "kafka": kafka,
        },
        "analysis": {
            "data_dir": str(plan.data / "analysis"),
            "lake_dir": str(plan.data / "lake"),
            "jars_dir": str(spark_jars or Path()),
            "metrics_port": ports.metrics("analysis"),
            "kafka": kafka,
        },
        "lake": {
            "data_dir": str(plan.data / "lake"),
            "metrics_port": ports.metrics("lake"),
            "kafka": kafka,
        },
        "push-1": {
            "name": "push-1",
            "host": "127.0.0.1",
            "port": ports.push,
            "cursor_key_file": str(plan.cursor_key_file),
            "lease_key_file": str(plan.lease_key_file),
            "allow_hosts": ["127.0.0.1"],
            "kafka": kafka,
        },
        "ops": _ops_config(plan, kafka, accesses),
        "agent": {
            "device": plan.device,
            "data_dir": str(plan.data / "agent"),
            "mqtt": {"host": "127.0.0.1", "port": plan.mqtt_of("devices")},
            "source": [
                {"type": "host_metrics", "stream": "host_metrics", "interval_s": 1.0, "mode": "ack"}
            ],
        },
    }
    for i in range(plan.access_servers):
        all_of_them[f"access-{i + 1}"] = {
            "name": f"access-{i + 1}",
            "host": "127.0.0.1",
            "port": ports.access(i),
            "cursor_key_file": str(plan.cursor_key_file),
            "ops_url": f"http://127.0.0.1:{ports.ops}",
            "kafka": kafka,
        }
    if plan.listen:
        _open_to_the_network(plan, all_of_them)
    return {name: all_of_them[name] for name in plan.names if name in all_of_them}


def _bridge_config(
    plan: Plan, kafka: Mapping[str, Any], accesses: Sequence[str]
) -> Mapping[str, Any]:
    return {
        "name": "bridge-1",
        "metrics_port": plan.ports.metrics("bridge"),
        "mqtt": {
            "host": "127.0.0.1",
            "port": plan.mqtt_of("bridge"),
            "share_key_file": str(plan.share_key_file),
        },
        "kafka": kafka,
        "feed": {"access_urls": accesses, "streams": ["*"]},  # all of it is this machine's own
        "http": {"port": plan.ports.http, "local": True, "prefix": PREFIX},
        "maps": {"presets": list(plan.presets), "prefix": PREFIX, "pushed": True},
        **({"sparkplug": {"host_id": HOST_ID, "prefix": PREFIX}} if plan.sparkplug else {}),
    }


def _ops_config(plan: Plan, kafka: Mapping[str, Any], accesses: Sequence[str]) -> Mapping[str, Any]:
    ports = plan.ports
    faults = {"port": ports.faults, "key_file": str(plan.faults_key_file)}
    return {
        "host": "127.0.0.1",
        "port": ports.ops,
        "data_dir": str(plan.data / "ops"),
        "lake_dir": str(plan.data / "lake"),
        "key_file": str(plan.ops_key_file),
        "seal_key_file": str(plan.seal_key_file),
        "alert_hosts": ["127.0.0.1"],
        "access_urls": accesses,
        "push": {"url": f"http://127.0.0.1:{ports.push}"},
        "kafka": kafka,
        **({"faults": faults} if plan.faults else {}),
    }


def _open_to_the_network(plan: Plan, configs: dict[str, Mapping[str, Any]]) -> None:
    """Say where else to listen, and what others must show there."""
    rights = {"local": "everything", "key_file": str(plan.readers_file)}
    there: dict[str, Any] = {"also_hosts": [plan.listen]}
    if plan.encrypted:
        there["also_cert_file"] = str(plan.authority.server_certificate)
        there["also_key_file"] = str(plan.authority.server_key)
    for name, values in configs.items():
        if _service_of(name) in ("access", "push"):
            configs[name] = {**values, **there, "rights": rights}
    moved: dict[str, Any] = {
        "host": plan.listen,
        "port": plan.ports.thingsboard,
        "password_file": str(plan.password_file),
        "enrol_url": f"http://127.0.0.1:{plan.ports.ops}",
        "firmware_dir": str(plan.data / "firmware"),
    }
    if plan.encrypted:
        moved["cert_file"] = str(plan.authority.server_certificate)
        moved["key_file"] = str(plan.authority.server_key)
    configs["bridge-1"] = {
        **configs["bridge-1"],
        "http": {
            **configs["bridge-1"]["http"],
            **there,
            "password_file": str(plan.password_file),
            "enrol_url": moved["enrol_url"],
        },
        "thingsboard": moved,
    }
    configs["ops"] = {
        **configs["ops"],
        **there,
        "password_file": str(plan.password_file),
        "broker": f"{plan.listen}:{plan.ports.mqtt}",
        "http_intake": http_url(plan),
    }
    if plan.encrypted:
        configs["bridge-1"] = {
            **configs["bridge-1"],
            "http": {
                **configs["bridge-1"]["http"],
                "also_client_ca_file": str(plan.authority.certificate),
                "certificates_file": str(plan.book_file),
            },
        }
        configs["ops"] = {
            **configs["ops"],
            "authority_dir": str(plan.authority.folder),
            "certificate_broker": f"{plan.listen}:{plan.ports.mqtt_certificates}",
        }


def http_url(plan: Plan) -> str:
    """Where devices send by HTTP: on the network where it is open to it, else on the loopback."""
    host = plan.listen or "127.0.0.1"
    named = f"[{host}]" if ":" in host else host
    return f"{'https' if plan.encrypted else 'http'}://{named}:{plan.ports.http}"


def config_file(plan: Plan, name: str) -> Path:
    """Where a part's configuration is written: bridge.toml for the only bridge.

    access-2.toml is for the second access server.
    """
    alone = name.endswith("-1") and f"{_service_of(name)}-2" not in plan.names
    return plan.config_dir / f"{_service_of(name) if alone else name}.toml"


_FLOORS: Final = {
    "bridge": Floor.BRIDGE,
    "sequencer": Floor.SEQUENCER,
    "analysis": Floor.ANALYSIS,
    "lake": Floor.SERVER,
    "access": Floor.SERVER,
    "push": Floor.SERVER,
    "ops": Floor.SERVER,
    "agent": Floor.SOURCE,
    "simulators": Floor.SOURCE,
    "ledger": Floor.SOURCE,
}
MQTT_CONNECT: Final = mqtt5.ConnectPacket(
    "supervisor-probe", clean_start=True, keep_alive=10
).write()
"""A broker that lives answers it by CONNACK."""
KAFKA_API_VERSIONS: Final = (
    b"\x00\x00\x00\x0a" + b"\x00\x12\x00\x00" + b"\x00\x00\x00\x00" + b"\xff\xff"
)
"""ApiVersions, version 0, no client id: the one request that every Kafka answers, whatever version
it is asked for (KIP-35)."""
_AFTER: Final[Mapping[str, tuple[str, ...]]] = {
    "bridge": ("mosquitto", "kafka"),
    "agent": ("bridge-1",),
    "simulators": ("bridge-1",),
    "ledger": ("bridge-1", "access-1", "ops", "analysis"),
}


def parts(
    plan: Plan, *, kafka: Sequence[str], mosquitto: Sequence[str], java_home: Path | None
) -> list[Part]:
    """What the supervisor is to run. `kafka` and `mosquitto` are their command lines."""
    env = _THRIFTY | ({"JAVA_HOME": str(java_home)} if java_home else {})
    found = []
    for name in plan.names:
        if name == "mosquitto":
            part = Part(
                name=name,
                command=tuple(mosquitto),
                floor=Floor.BROKER,
                port=plan.ports.mqtt,
                probe=MQTT_CONNECT,
                stop_s=2,
            )
        elif name == "kafka":
            part = Part(
                name=name,
                command=tuple(kafka),
                floor=Floor.KAFKA,
                port=plan.ports.kafka,
                probe=KAFKA_API_VERSIONS,
                stop_s=4,
                env=_THRIFTY,
            )
        else:
            service = _service_of(name)
            part = Part(
                name=name,
                command=_command(plan, name),
                floor=_FLOORS[service],
                after=_AFTER.get(service, ("kafka",)),
                env=env,
            )
        found.append(part)
    return found


def _command(plan: Plan, name: str) -> tuple[str, ...]:
    edgewake = (sys.executable, "-m", "edgewake.deploy.cli")
    if name == "simulators":
        return (
            *edgewake,
            "simulate",
            "fleet",
            "--vehicles",
            str(VEHICLES),
            "--host",
            "127.0.0.1",
            "--port",
            str(plan.mqtt_of("devices")),
        )
    if name == "ledger":
        return (
            *edgewake,
            "simulate",
            "ledger",
            "--host",
            "127.0.0.1",
            "--port",
            str(plan.mqtt_of("devices")),
            "--access",
            f"127.0.0.1:{plan.ports.link('readers')}",
            "--ops",
            f"http://127.0.0.1:{plan.ports.ops}",
            "--key-file",
            str(plan.ops_key_file),
            "--out",
            str(plan.verdict_file),
        )
    return (*edgewake, _service_of(name), "--config", str(config_file(plan, name)))
