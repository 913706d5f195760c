"""The whole way of a message as in production: the broker with its rules and certificates, two
bridges, Kafka, a sequencer; and a victim.

A victim is a plain device that sends a numbered reading at a time and waits for its end-to-end
answer. `unharmed` says what it saw beside an attacker: how long its answers took against before,
and what of its readings the sequencer passed on, each by its value. `victims.py` keeps it as a row.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Message
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edgewake.cloud.bridge.mqtt.subscriptions import read_keys, subscriptions
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from tests.bridge.running import READY
from tests.bridge.topic_reader import TopicReader
from tests.deploy.production import Client, Site, production_site
from tests.hostile.victims import Count, Seen, note, slower, times_of_this_machine
from tests.services import PATIENCE_S, Kafka, Process, free_ports, part, wait_until

BRIDGES = ("bridge-1", "bridge-2")
INSTALLATION = "edgewake"
PROBES = 40
"""Readings that a victim sends before an attack, and during it."""
PAUSE_S = 0.02


@dataclass
class World:
    """What runs."""

    site: Site
    node: Kafka
    folder: Path
    parts: dict[str, Process] = field(default_factory=dict)
    victims: int = 0

    @property
    def kafka(self) -> KafkaConfig:
        """How to reach Kafka."""
        return KafkaConfig(bootstrap=self.node.bootstrap)

    @property
    def filters(self) -> tuple[str, ...]:
        """What the bridges share, by its real name."""
        keys = read_keys(self.site.certificates / "keys" / "share.key")
        return tuple(
            one for one in subscriptions(INSTALLATION, keys).wanted if one.startswith("$share/")
        )

    def start_bridge(self, name: str, *lines: str, module: str | None = None) -> Process:
        """A bridge that serves; `lines`: its table [device]; `module`: another program."""
        certificates = self.site.certificates
        (metrics,) = free_ports(1)
        text = f"""
name = "{name}"
metrics_port = {metrics}
[mqtt]
host = "localhost"
port = {self.site.ports["bridges"]}
site = "hostile"
ca_file = "{certificates}/broker/devices-ca.crt"
cert_file = "{certificates}/bridges/{name}.crt"
key_file = "{certificates}/bridges/{name}.key"
share_key_file = "{certificates}/keys/share.key"
[kafka]
bootstrap = "{self.node.bootstrap}"
[device]
"""
        return self._start("bridge", name, "\n".join([text, *lines]), module)

    def start_sequencer(self, *, module: str | None = None) -> Process:
        """The sequencer; `module`: another program."""
        return self._start(
            "sequencer",
            "sequencer-1",
            f'name = "sequencer-1"\n[kafka]\nbootstrap = "{self.node.bootstrap}"\n',
            module,
        )

    def _start(self, command: str, name: str, text: str, module: str | None = None) -> Process:
        file, log = self.folder / f"{name}.toml", self.folder / f"{name}.log"
        file.write_text(text)
        process = self.parts[name] = (
            part(command, file, log)
            if module is None
            else Process([sys.executable, "-m", module, "--config", str(file)], log)
        )
        process.start()
        process.wait_for(READY)
        return process

    def stop(self, *names: str) -> None:
        """Stop parts; all where none is named. Each must end cleanly, once all have ended."""
        wrong = []
        for name in names or tuple(self.parts):
            process = self.parts.pop(name)
            if not process.is_running() or process.stop() != 0:
                wrong.append(f"{name}: {process.output()[-2000:]}")
        assert wrong == []

    def kill(self, *names: str) -> None:
        """End parts that may have more to do than they could in the time of an orderly end."""
        for name in names:
            self.parts.pop(name).kill()

    @contextmanager
    def bridges_with(
        self, *lines: str, are_overrun: bool = False, module: str | None = None
    ) -> Iterator[None]:
        """The bridges with another table [device], or as another program, for a while.

        `are_overrun`: they take whatever an attacker sends, so they are killed in the end.
        """
        self.stop(*BRIDGES)
        for name in BRIDGES:
            self.start_bridge(name, *lines, module=module)
        end = self.kill if are_overrun else self.stop
        try:
            yield
        finally:
            try:
                end(*BRIDGES)
            finally:  # other tests go on with the usual ones
                for name in BRIDGES:
                    self.start_bridge(name)

    @contextmanager
    def rules(self, **added: str) -> Iterator[None]:
        """The broker with more rules for a while: `devices="pattern write #"`."""
        files = [self.site.root / f"etc/mosquitto/{name}.acl" for name in added]
        texts = [file.read_text() for file in files]
        try:
            for file, text, more in zip(files, texts, added.values(), strict=True):
                file.write_text(f"{text}\n{more}\n")
            self.site.reload()
            yield
        finally:
            for file, text in zip(files, texts, strict=True):
                file.write_text(text)
            self.site.reload()

    @contextmanager
    def device(self, name: str, **more: object) -> Iterator[Client]:
        """A device with its certificate."""
        with Client(self.site, name, **more) as client:  # type: ignore[arg-type]
            yield client

    @contextmanager
    def victim(self) -> Iterator[Victim]:
        """A device that did nothing to anybody, with a stream of its own."""
        self.victims += 1
        with Client(self.site, "victim") as client:
            yield Victim(self, client, f"victim_{self.victims}")

    def records(self, topic: str, device: str) -> list[Message]:
        """All records of a device on a topic."""
        with TopicReader(self.kafka, topic, device=device) as reader:
            return reader.read()

    def letters(self, device: str) -> list[tuple[DeadLetter, bytes]]:
        """The dead letters of a device."""
        return [
            (DeadLetter.from_headers(one.headers() or ()), one.value() or b"")
            for one in self.records(topics.DEAD, device)
        ]


@dataclass
class Victim:
    """Sends readings `{"seq": n, "n": n}`, one at a time."""

    world: World
    client: Client
    stream: str
    sent: int = 0

    def __post_init__(self) -> None:
        self._answered: dict[int, float] = {}
        self._here = threading.Event()
        self.refusals: list[bytes] = []
        self.heard: set[str] = set()
        """Topics of what came down to it."""
        self.client.mqtt.on_message = self._on_message
        self.client.mqtt.on_connect = lambda *_: self.client.mqtt.subscribe(
            f"ew/v1/{self.client.name}/#", qos=1
        )
        self.client.subscribe(f"ew/v1/{self.client.name}/#")

    def _on_message(self, _client: object, _userdata: object, message: MQTTMessage) -> None:
        self.heard.add(message.topic)
        number = int(bytes(message.properties.CorrelationData))  # type: ignore[union-attr]
        if message.payload.startswith(b'{"token"') and b"rejected" not in message.payload:
            self._answered.setdefault(number, time.monotonic())
        else:
            self.refusals.append(bytes(message.payload))
        self._here.set()

    def send(self) -> float:
        """One reading; seconds until its answer was there."""
        self.sent += 1
        number = self.sent
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic = topics.ack(self.client.name)
        properties.CorrelationData = b"%d" % number
        payload = b'{"seq":%d,"n":%d}' % (number, number)
        began = time.monotonic()
        self.client.mqtt.publish(
            topics.up(self.client.name, self.stream), payload, qos=1, properties=properties
        )
        while number not in self._answered:
            assert time.monotonic() - began < PATIENCE_S, (
                f"no answer to reading {number}; refusals: {self.refusals[:3]}"
            )
            self._here.wait(0.05)
            self._here.clear()
        return self._answered[number] - began

    def series(self, count: int = PROBES) -> Seen:
        """So many readings, with a pause after each."""
        latencies = []
        for _ in range(count):
            latencies.append(self.send())
            time.sleep(PAUSE_S)
        return Seen(tuple(latencies))

    def passed_on(self) -> Counter[int]:
        """What the sequencer passed on of this victim's readings: how often each value."""
        found = (
            record.decode(one.value() or b"")
            for one in self.world.records(topics.stream_topic(self.stream), self.client.name)
        )
        return Counter(int(value) for one in found for value in one.frame.fields.get("n", ()))  # type: ignore[arg-type]

    def count(self) -> Count:
        """What became of its readings; waits for what is on its way."""
        expected = Counter(range(1, self.sent + 1))
        wait_until(
            lambda: self.passed_on().total() >= self.sent, f"all {self.sent} readings of the victim"
        )
        found = self.passed_on()
        return Count(
            lost=(expected - found).total(),
            twice=sum(found[n] - 1 for n in found if n in expected),
            wrong=sum(found[n] for n in found if n not in expected)
            + len(self.heard - {topics.ack(self.client.name)}),
        )

    def is_whole(self) -> bool:
        """Nothing lost, nothing twice, nothing wrong; waits for what is on its way."""
        assert self.count() == Count()
        return not self.refusals


def unharmed(
    victim: Victim, attack: Callable[[], object], *, count: int = PROBES, head_start: int = 1
) -> tuple[Seen, Seen]:
    """Run the attack in a thread while the victim sends; what it saw before and meanwhile.

    Raises AssertionError where it was harmed.
    """
    before, beside = beside_attack(victim, attack, count=count, head_start=head_start)
    counted = victim.count()
    note("another device", before, beside, counted)
    assert slower(before, beside, times_of_this_machine()) == ""
    assert counted == Count()
    assert not victim.refusals, victim.refusals[:3]
    return before, beside


def harmed(
    victim: Victim, attack: Callable[[], object], *, count: int = PROBES, head_start: int = 1
) -> None:
    """The same for a control: `unharmed` would have noticed, on a machine that does nothing else.

    What the victim sent is whole all the same, for it waits for its answers.
    """
    before, beside = beside_attack(victim, attack, count=count, head_start=head_start)
    note("another device", before, beside)
    assert slower(before, beside), (before.text, beside.text)


def beside_attack(
    victim: Victim, attack: Callable[[], object], *, count: int = PROBES, head_start: int = 1
) -> tuple[Seen, Seen]:
    """What the victim sees before and beside an attack, which goes on until the victim is done: it
    is called again and again, the first `head_start` times before the victim sends.
    """
    victim.send()  # its stream is new
    before = victim.series(count)
    stop, failed = threading.Event(), list[BaseException]()
    began = threading.Event()

    def run() -> None:
        try:
            for calls in itertools.count(1):
                attack()
                if calls == head_start:
                    began.set()
                if stop.is_set():
                    return
        except BaseException as error:  # raised below, in the test
            failed.append(error)
            began.set()

    thread = threading.Thread(target=run, name="attack")
    thread.start()
    try:
        assert began.wait(PATIENCE_S), "the attack began"
        beside = victim.series(count)
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    if failed:
        raise failed[0]
    return before, beside


@contextmanager
def world(node: Kafka, folder: Path, *names: str) -> Iterator[World]:
    """Everything started, with certificates for these devices."""
    with production_site(
        "victim", *names, *(word for name in BRIDGES for word in ("--bridge", name))
    ) as site:
        made = World(site, node, folder)
        try:
            made.start_sequencer()
            for name in BRIDGES:
                made.start_bridge(name)
            yield made
        finally:
            for process in made.parts.values():
                if process.is_running():
                    process.stop()
