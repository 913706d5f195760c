"""Mosquitto with the production configuration, real certificates and real clients: a device touches its own topics only."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from edgewake.deploy import cli, mosquitto
from tests.services import Process, free_ports, port_is_open, wait_until

DEPLOY = Path(cli.__file__).parent
SUCCESS, NO_SUBSCRIBER, NOT_AUTHORISED = 0x00, 0x10, 0x87


def make_certificates(folder: Path, *names: str, **environ: str) -> None:
    """By the script that a user runs."""
    subprocess.run(["sh", DEPLOY / "certificates.sh", folder, *names], check=True, capture_output=True, env=os.environ | environ)


@dataclass
class Site:
    """A running production broker and its certificates."""

    port: int
    certificates: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The production files, with nothing changed but paths, port and address."""
    folder = tmp_path_factory.mktemp("production")
    certificates = folder / "certs"
    make_certificates(certificates, "dev-a", "dev-b", "bridge-1")
    (port,) = free_ports(1)
    text = (DEPLOY / "mosquitto" / "production.conf").read_text()
    for old, new in (
        ("listener 8883", f"listener {port} 127.0.0.1"),
        ("/etc/mosquitto/certs", str(certificates)),
        ("/etc/mosquitto/edgewake.acl", str(DEPLOY / "mosquitto" / "production.acl")),
        ("/var/lib/mosquitto/", f"{folder}/"),
    ):
        assert old in text
        text = text.replace(old, new)
    config = folder / "mosquitto.conf"
    config.write_text(text + ("user root\n" if os.geteuid() == 0 else ""))
    with Process([str(mosquitto.ensure()), "-c", str(config)], folder / "log") as broker:
        wait_until(lambda: port_is_open(port) or not broker.is_running(), "Mosquitto takes connections")
        assert broker.is_running(), broker.output()
        yield Site(port, certificates)


@dataclass
class Client:
    """A paho client that notes what it is told."""

    site: Site
    name: str
    client_id: str = ""
    codes: dict[int, int] = field(default_factory=dict)
    topics: list[str] = field(default_factory=list)
    connected: threading.Event = field(default_factory=threading.Event)
    subscribed: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Client:
        self.mqtt = paho.Client(CallbackAPIVersion.VERSION2, client_id=self.client_id or self.name, protocol=paho.MQTTv5)
        folder = self.site.certificates
        self.mqtt.tls_set(str(folder / "ca.crt"), str(folder / f"{self.name}.crt"), str(folder / f"{self.name}.key"))
        self.mqtt.on_connect = lambda *_: self.connected.set()
        self.mqtt.on_subscribe = lambda *_: self.subscribed.set()
        self.mqtt.on_publish = lambda _c, _u, mid, code, _p: self._note(mid, code)
        self.mqtt.on_message = lambda _c, _u, message: self.topics.append(message.topic)
        self.mqtt.connect("127.0.0.1", self.site.port)
        self.mqtt.loop_start()
        assert self.connected.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.mqtt.disconnect()
        self.mqtt.loop_stop()

    def _note(self, mid: int, code: ReasonCode) -> None:
        self.codes[mid] = code.value

    def subscribe(self, topic: str) -> None:
        """And wait for the answer."""
        self.subscribed.clear()
        self.mqtt.subscribe(topic, qos=1)
        assert self.subscribed.wait(60)

    def publish(self, topic: str) -> int:
        """Publish with QoS 1; the reason code of the answer."""
        mid = self.mqtt.publish(topic, b"{}", qos=1).mid
        wait_until(lambda: mid in self.codes, f"an answer to {topic}", timeout_s=60)
        return self.codes[mid]


def test_a_device_publishes_on_its_own_topics(site: Site) -> None:
    with Client(site, "dev-a") as device:
        assert device.publish("ew/v1/dev-a/up/weather") in (SUCCESS, NO_SUBSCRIBER)
        assert device.publish("ew/v1/dev-a/status") in (SUCCESS, NO_SUBSCRIBER)


@pytest.mark.parametrize(
    "topic",
    ["ew/v1/dev-b/up/weather", "ew/v1/dev-b/status", "ew/v1/dev-a/ack", "ew/v1/dev-b/ack", "ew/v1/dev-a/up/a/b", "other", "ew/v1/pub/x"],
)
def test_a_device_publishes_nowhere_else(site: Site, topic: str) -> None:
    with Client(site, "dev-a") as device:
        assert device.publish(topic) == NOT_AUTHORISED


def test_a_device_hears_nothing_of_another_even_when_it_asks_for_everything(site: Site) -> None:
    with Client(site, "dev-a") as device, Client(site, "dev-b") as other, Client(site, "bridge-1") as bridge:
        for topic in ("#", "ew/v1/+/up/+", "ew/v1/dev-b/ack", "$SYS/#", "$share/x/ew/v1/+/up/+"):
            device.subscribe(topic)
        bridge.subscribe("$share/bridges/ew/v1/+/up/+")
        other.publish("ew/v1/dev-b/up/weather")
        bridge.publish("ew/v1/dev-b/ack")
        bridge.publish("ew/v1/dev-a/ack")
        wait_until(lambda: device.topics, "its own answer arrives", timeout_s=60)
        wait_until(lambda: bridge.topics, "the bridge hears", timeout_s=60)
    assert set(device.topics) == {"ew/v1/dev-a/ack"}
    assert bridge.topics == ["ew/v1/dev-b/up/weather"]


def test_a_bridge_cannot_pretend_to_be_a_device(site: Site) -> None:
    with Client(site, "bridge-1") as bridge:
        assert bridge.publish("ew/v1/dev-a/up/weather") == NOT_AUTHORISED


def test_another_client_id_does_not_take_over_a_session(site: Site) -> None:
    """The certificate's name is the client id, whatever a client says."""
    with Client(site, "dev-b") as honest, Client(site, "dev-a", client_id="dev-b"):
        assert honest.publish("ew/v1/dev-b/up/weather") in (SUCCESS, NO_SUBSCRIBER)
        assert honest.mqtt.is_connected()


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the right name by a wrong authority."""
    folder = tmp_path_factory.mktemp("strangers")
    make_certificates(folder, "dev-a")
    return folder


def _shake_hands(site: Site, context: ssl.SSLContext) -> None:
    """Connect as far as the broker's first answer; TLS 1.3 refuses a client's certificate only then."""

    with (
        socket.create_connection(("127.0.0.1", site.port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as tls,
    ):
        tls.sendall(bytes.fromhex("101200044d5154540502003c000005") + b"dev-a")
        assert tls.recv(1) == b"\x20", "no CONNACK"


def _context(site: Site) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(site.certificates / "ca.crt"))


def test_no_certificate_and_a_strangers_certificate_are_refused(site: Site, strangers: Path) -> None:
    without, foreign = _context(site), _context(site)
    foreign.load_cert_chain(strangers / "dev-a.crt", strangers / "dev-a.key")
    for context in (without, foreign):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            _shake_hands(site, context)


def test_an_expired_certificate_is_refused(site: Site, tmp_path: Path) -> None:
    for name in ("ca.crt", "ca.key", "ca.srl", "server.crt", "server.key"):
        shutil.copy(site.certificates / name, tmp_path / name)
    make_certificates(tmp_path, "dev-a", DAYS="-1")
    context = _context(site)
    context.load_cert_chain(tmp_path / "dev-a.crt", tmp_path / "dev-a.key")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        _shake_hands(site, context)


def test_the_right_certificate_is_accepted_by_the_same_handshake(site: Site) -> None:
    context = _context(site)
    context.load_cert_chain(site.certificates / "dev-a.crt", site.certificates / "dev-a.key")
    _shake_hands(site, context)


def test_keys_are_readable_by_their_owner_only(site: Site) -> None:
    assert {path.stat().st_mode & 0o077 for path in site.certificates.iterdir()} == {0}


def test_a_name_that_is_no_device_gets_no_certificate(tmp_path: Path) -> None:
    for name in ("#", "+", "a/b", ""):
        done = subprocess.run(["sh", DEPLOY / "certificates.sh", tmp_path, name], capture_output=True, text=True, check=False)
        assert (done.returncode, re.match("name .*: expected", done.stderr) is not None) == (2, True)
