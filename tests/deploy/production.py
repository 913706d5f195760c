"""A Mosquitto as Debian starts it, with the files that `install.sh` and `certificates.sh` put
there; clients that show certificates.
"""

from __future__ import annotations

import datetime
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edgewake.deploy import cli
from edgewake.deploy.programs import mosquitto
from tests.services import Process, free_ports, port_is_open, wait_until

DEPLOY = Path(cli.__file__).resolve().parent
DEBIAN = Path("/etc/mosquitto/mosquitto.conf")
"""The main file of Debian's package; ours is included by it."""
CONNECT_V5 = bytes.fromhex("101200044d5154540502003c000005") + b"dev-a"
SUCCESS, NO_SUBSCRIBER = 0x00, 0x10
TAKEN = (SUCCESS, NO_SUBSCRIBER)
"""Answers to a publish that was taken, also where nobody subscribes (MQTT 5, 3.4.2.1)."""
TLS_REFUSED = (ssl.SSLError, ConnectionError)


def certificates(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """`certificates.sh` as a user runs it."""
    command = ["sh", str(DEPLOY / "certificates.sh"), str(folder), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | environ
    )


@dataclass
class Site:
    """A production broker."""

    root: Path
    process: Process
    ports: dict[str, int]
    """Of devices and of bridges."""
    environ: dict[str, str] = field(default_factory=dict)
    """What install.sh is told besides."""

    @property
    def certificates(self) -> Path:
        """What certificates.sh made."""
        return self.root / "certificates"

    def issue(self, *arguments: str, **environ: str) -> None:
        """Make or revoke certificates."""
        done = certificates(self.certificates, *arguments, **environ)
        assert done.returncode == 0, done.stderr

    def install(self) -> None:
        """Run install.sh, then move paths and ports to where the test may write."""
        command = ["sh", str(DEPLOY / "mosquitto" / "install.sh"), str(self.certificates)]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            env=os.environ | {"ROOT": str(self.root)} | self.environ,
        )
        self.edit(self.root / "etc/mosquitto/conf.d/edgewake.conf", {
            "listener 8883": f"listener {self.ports['devices']} 127.0.0.1",
            "listener 8884": f"listener {self.ports['bridges']} 127.0.0.1",
            "/etc/mosquitto": f"{self.root}/etc/mosquitto",
        })  # fmt: skip

    def edit(self, path: Path, changes: dict[str, str]) -> None:
        """Replace texts that are there."""
        text = path.read_text()
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        path.write_text(text)

    def start(self) -> None:
        """Start it as Debian's unit does: by root, from where it becomes the user mosquitto."""
        shutil.copy(DEBIAN, self.root / "etc/mosquitto/mosquitto.conf")
        self.edit(self.root / "etc/mosquitto/mosquitto.conf", {
            name: f"{self.root}{name}" for name in ("/run/mosquitto", "/var/lib/mosquitto",
                "/var/log/mosquitto", "/etc/mosquitto/conf.d")
        })  # fmt: skip
        for name in ("run/mosquitto", "var/lib/mosquitto", "var/log/mosquitto"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
            if os.geteuid() == 0:
                shutil.chown(self.root / name, "mosquitto")
        self.process.start()
        wait_until(
            lambda: self._answers() or not self.process.is_running(), "Mosquitto takes connections"
        )
        assert self.process.is_running(), self.process.output() + self.log()

    def _answers(self) -> bool:
        return all(map(port_is_open, self.ports.values()))

    def log(self) -> str:
        """The broker's own log."""
        return (self.root / "var/log/mosquitto/mosquitto.log").read_text()

    def reload(self) -> None:
        """`systemctl reload mosquitto`."""
        seen = self.log().count("Reloading config")
        self.process.signal(signal.SIGHUP)
        wait_until(lambda: self.log().count("Reloading config") > seen, "it read its files again")

    def context(self, group: str = "devices", name: str | None = None) -> ssl.SSLContext:
        """TLS that checks the broker's certificate and shows the one of `name`."""
        context = ssl.create_default_context(
            cafile=str(self.certificates / "broker" / "devices-ca.crt")
        )
        if name:
            folder = self.certificates / group
            context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
        return context

    def shake_hands(self, context: ssl.SSLContext, listener: str = "devices") -> None:
        """Connect as far as the broker's first answer; TLS 1.3 refuses a client's certificate only
        then.
        """
        with (
            socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            tls.sendall(CONNECT_V5)
            if tls.recv(1) != b"\x20":
                raise ConnectionError("no CONNACK")


def certificate(
    site: Site, folder: Path, name: str, first: datetime.datetime, last: datetime.datetime
) -> Path:
    """A certificate of a device, by the devices' authority and with its own key, that is good
    between two moments.
    """
    authority = x509.load_pem_x509_certificate(
        (site.certificates / "broker" / "devices-ca.crt").read_bytes()
    )
    ca_key = serialization.load_pem_private_key(
        (site.certificates / "authority" / "devices" / "ca.key").read_bytes(), None
    )
    key = serialization.load_pem_private_key(
        (site.certificates / "devices" / f"{name}.key").read_bytes(), None
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())  # type: ignore[arg-type]
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(last)
        .sign(ca_key, hashes.SHA256())  # type: ignore[arg-type]
    )
    path = folder / f"{name}.crt"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


@contextmanager
def production_site(*names: str, **environ: str) -> Iterator[Site]:
    """A broker with certificates for `names`, each an argument of certificates.sh.

    `environ`: variables of install.sh.
    """
    devices, bridges = free_ports(2)
    # Not below pytest's own folder, which the user mosquitto may not enter.
    root = Path(tempfile.mkdtemp(prefix="edgewake-broker-"))
    root.chmod(0o755)
    command = [str(mosquitto.ensure()), "-c", str(root / "etc/mosquitto/mosquitto.conf")]
    ports = {"devices": devices, "bridges": bridges}
    site = Site(root, Process(command, root / "output"), ports, environ)
    try:
        site.issue(*names)
        site.install()
        site.start()
        yield site
    finally:
        if site.process.is_running():
            site.process.stop()
        shutil.rmtree(root)


@dataclass
class Client:
    """A paho client that notes what it is told."""

    site: Site
    name: str
    group: str = "devices"
    client_id: str = ""
    protocol: int = paho.MQTTv5
    session_s: int | None = None
    """Seconds that the broker keeps the session; one that it has already is then continued."""
    codes: dict[int, int] = field(default_factory=dict)
    topics: list[str] = field(default_factory=list)
    connected: threading.Event = field(default_factory=threading.Event)
    subscribed: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Client:
        self.mqtt = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.client_id or self.name,
            protocol=self.protocol,
        )  # type: ignore[arg-type]
        self.mqtt.tls_set_context(self.site.context(self.group, self.name))
        self.mqtt.on_connect = lambda *_: self.connected.set()
        self.mqtt.on_disconnect = lambda *_: self.left.set()
        self.mqtt.on_subscribe = lambda _c, _u, _mid, codes, _p: self._note_granted(
            [code.value for code in codes]
        )
        self.mqtt.on_publish = lambda _c, _u, mid, code, _p: self._note(mid, code)
        self.mqtt.on_message = lambda _c, _u, message: self.topics.append(message.topic)
        properties = None
        if self.session_s is not None:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = self.session_s
        self.mqtt.connect(
            "127.0.0.1",
            self.site.ports[self.group],
            clean_start=False if self.session_s is not None else paho.MQTT_CLEAN_START_FIRST_ONLY,
            properties=properties,
        )
        self.mqtt.loop_start()
        assert self.connected.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.mqtt.disconnect()
        self.mqtt.loop_stop()
        # They hold this client, which holds paho's: without them its sockets are closed at once.
        self.mqtt.on_connect = self.mqtt.on_disconnect = self.mqtt.on_subscribe = None
        self.mqtt.on_publish = self.mqtt.on_message = None

    def _note(self, mid: int, code: ReasonCode) -> None:
        self.codes[mid] = code.value

    def _note_granted(self, codes: list[int]) -> None:
        self.granted = codes
        self.subscribed.set()

    def subscribe(self, topic: str) -> list[int]:
        """And wait for the answer: its reason codes."""
        self.subscribed.clear()
        self.mqtt.subscribe(topic, qos=1)
        assert self.subscribed.wait(60)
        return self.granted

    def publish(self, topic: str, payload: bytes = b"{}") -> int:
        """Publish with QoS 1; the reason code of the answer."""
        mid = self.mqtt.publish(topic, payload, qos=1).mid
        wait_until(lambda: mid in self.codes, f"an answer to {topic}")
        return self.codes[mid]
