"""The devices' authority is replaced while a fleet sends: the steps of docs/production.md, on the
production broker.
"""

from __future__ import annotations

import shutil
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from tests.bridge.topic_reader import TopicReader
from tests.deploy.production import TLS_REFUSED, Client, certificates
from tests.hostile import victims
from tests.hostile.world import World
from tests.services import PATIENCE_S, wait_until

pytestmark = pytest.mark.services

AGAIN_S = 2.0
"""Seconds after which a device sends a reading again that was not answered: an answer that went to
a connection which has ended is lost."""
PAUSE_S = 0.1
MORE = 3
"""Readings that each device must bring through after each step."""


@dataclass
class Sender:
    """A device that sends `{"seq": n, "n": n}` all the time, the next when the last is answered."""

    here: World
    name: str
    stream: str
    answered: int = 0
    failed: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._new: Path | None = None
        self.has_new = False
        self._stop, self._came = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name)
        self._thread.start()

    def give(self, folder: Path) -> None:
        """A certificate of the new authority, and its key."""
        self._new = folder

    def stop(self) -> None:
        """After the reading that it waits for."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                with Client(self.here.site, self.name) as client:
                    self._listen(client)
                    while not self._stop.is_set() and self._new is None:
                        self._send(client)
                        self._stop.wait(PAUSE_S)
                if self._new is not None:
                    for suffix in ("crt", "key"):
                        own = self.here.site.certificates / "devices" / f"{self.name}.{suffix}"
                        shutil.copy(self._new / f"{self.name}.{suffix}", own)
                    self._new, self.has_new = None, True
        except BaseException as error:  # raised in the test
            self.failed.append(error)

    def _listen(self, client: Client) -> None:
        mqtt, topic = client.mqtt, topics.ack(self.name)
        mqtt.on_message = self._on_message
        client.subscribe(topic)
        mqtt.on_connect = lambda *_: mqtt.subscribe(topic, qos=1) and None

    def _on_message(self, _client: object, _userdata: object, message: MQTTMessage) -> None:
        number = int(bytes(message.properties.CorrelationData))  # type: ignore[union-attr]
        if message.payload.startswith(b'{"token"') and b"rejected" not in message.payload:
            self.answered = max(self.answered, number)
        self._came.set()

    def _send(self, client: Client) -> None:
        number = self.answered + 1
        properties: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic = topics.ack(self.name)
        properties.CorrelationData = b"%d" % number
        payload = b'{"seq":%d,"n":%d}' % (number, number)
        topic = topics.up(self.name, self.stream)
        while self.answered < number and not self._stop.is_set():
            self._came.clear()
            client.mqtt.publish(topic, payload, qos=1, properties=properties)
            self._came.wait(AGAIN_S)


@contextmanager
def sending(here: World, names: list[str], stream: str) -> Iterator[list[Sender]]:
    """A fleet that sends until the end of the block."""
    fleet = [Sender(here, name, stream) for name in names]
    try:
        yield fleet
    finally:
        for one in fleet:
            one._stop.set()
        for one in fleet:
            one.stop()


def go_on(fleet: list[Sender]) -> None:
    """Each brings some more readings through."""
    wanted = {one.name: one.answered + MORE for one in fleet}

    def have_all() -> bool:
        for one in fleet:
            assert one.failed == [], one.name
        return all(one.answered >= wanted[one.name] for one in fleet)

    wait_until(have_all, f"{MORE} more readings of each device are answered")


def let_in(here: World, *folders: Path) -> None:
    """Give the broker these authorities of devices, each with its list of what it revoked."""
    installed = here.site.root / "etc/mosquitto/certs"
    for name in ("devices-ca.crt", "devices-crl.pem"):
        text = "".join((folder / "broker" / name).read_text() for folder in folders)
        (installed / name).write_text(text)


def passed_on(here: World, stream: str) -> dict[str, Counter[int]]:
    """How often each device's numbers are in the stream."""
    found: dict[str, Counter[int]] = {}
    with TopicReader(here.kafka, topics.stream_topic(stream)) as reader:
        for one in reader.read():
            numbers = record.decode(one.value() or b"").frame.fields["n"]
            found.setdefault((one.key() or b"").decode(), Counter()).update(map(int, numbers))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("count", [pytest.param(100, marks=pytest.mark.long), 4])
def test_a_fleet_gets_certificates_of_a_new_authority_and_loses_nothing(
    here: World, tmp_path: Path, count: int
) -> None:
    """Half has new ones while half has old ones; in the end old ones are refused."""
    names, stream = [f"fleet-{count}-{n}" for n in range(count)], f"rotated_{count}"
    old, new, half = here.site.certificates, tmp_path / "new", count // 2
    here.site.issue(*names)
    assert certificates(new, *names).returncode == 0
    here.site.install()
    here.site.reload()
    of_old = old_context(here, tmp_path, names[0])
    of_new = here.site.context()
    of_new.load_cert_chain(new / f"devices/{names[0]}.crt", new / f"devices/{names[0]}.key")
    try:
        with sending(here, names, stream) as fleet:
            go_on(fleet)
            with pytest.raises(TLS_REFUSED):  # not before the broker knows the new authority
                here.site.shake_hands(of_new)
            let_in(here, old, new)
            here.site.reload()
            go_on(fleet)
            for part in (fleet[:half], fleet[half:]):
                for one in part:
                    one.give(new / "devices")
                wait_until(partial(all_have_new, part), "they came in with the new ones")
                go_on(fleet)
            here.site.shake_hands(of_old)
            let_in(here, new)
            here.site.process.stop()
            here.site.start()
            go_on(fleet)
            with pytest.raises(TLS_REFUSED):
                here.site.shake_hands(of_old)
    finally:  # other tests have certificates of the old one
        here.site.install()
        here.site.process.stop()
        here.site.start()
    wanted = {one.name: set(range(1, one.answered + 1)) for one in fleet}
    found = passed_on(here, stream)
    lost = sum(len(wanted[name] - found[name].keys()) for name in names)
    twice = sum(count - 1 for numbers in found.values() for count in numbers.values())
    victims.note("the fleet", "-", f"{sum(map(len, wanted.values()))} readings", victims.Count())
    assert (lost, twice) == (0, 0)


def all_have_new(fleet: list[Sender]) -> bool:
    return all(one.has_new for one in fleet)


def old_context(here: World, folder: Path, name: str) -> ssl.SSLContext:
    """What a device shows that kept its old certificate."""
    for suffix in ("crt", "key"):
        shutil.copy(here.site.certificates / "devices" / f"{name}.{suffix}", folder)
    context = here.site.context()
    context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return context
