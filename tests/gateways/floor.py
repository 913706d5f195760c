"""A factory floor: gateways (agents) with an HTTP intake for the things behind them, a broker,
a Kafka, a bridge with rules, a sequencer, an operations API and an access server, all real.

A thing posts its readings to a gateway and keeps each until the gateway has said that it has it.
"""

from __future__ import annotations

import itertools
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record
from edgewake.protocol.frames.dead_letter import DeadLetter
from tests.bridge.topic_reader import TopicReader
from tests.services import (
    PATIENCE_S,
    STAYS,
    Kafka,
    Mosquitto,
    Process,
    free_ports,
    part,
    port_is_open,
    run_kafka,
    run_mosquitto,
    wait_until,
)

READY = '"event":"part.ready"'
OPS_KEY = "floor-key-0123456789abcdef"
RULES = """
[[gateway]]
name = "gw-*"
things = ["meter-*"]
"""
RIGHTS = """
[rights]
anonymous = "everything"
key_file = "{readers}"
[rights.roles.reader]
grants = [{{ streams = ["power", "power_mean"], devices = ["$device"] }}]
"""
"""Rights at the access server: everybody reads everything, but for who says that it is one
thing's app."""


@dataclass
class Floor:
    """What runs."""

    broker: Mosquitto
    node: Kafka
    folder: Path
    stack: ExitStack
    parts: dict[str, Process] = field(default_factory=dict)
    intakes: dict[str, int] = field(default_factory=dict)
    ops_port: int = 0
    access_port: int = 0

    @property
    def kafka(self) -> KafkaConfig:
        """How to reach Kafka."""
        return KafkaConfig(bootstrap=self.node.bootstrap)

    def _start(self, command: str, name: str, text: str) -> Process:
        file = self.folder / f"{name}.toml"
        file.write_text(text)
        process = self.parts[name] = part(command, file, self.folder / f"{name}.log")
        self.stack.callback(lambda: process.is_running() and process.stop())
        process.start()
        process.wait_for(READY)
        return process

    def start_cloud(self, rules: str = RULES) -> None:
        """All parts of it. `rules`: lines of bridge.toml."""
        kafka = f'[kafka]\nbootstrap = "{self.node.bootstrap}"\n'
        self.ops_port, self.access_port = free_ports(2)
        self.start_bridge(rules)
        self._start("sequencer", "sequencer-1", f'name = "sequencer-1"\n{kafka}')
        readers = self.folder / "readers.keys"
        readers.write_text("hall-app reader hall-app-key-0000001 meter-right-hall\n")
        readers.chmod(0o600)
        key, ops_key = self.folder / "cursor.key", self.folder / "ops.key"
        key.write_text(f"1 {'ab' * 32}\n")
        key.chmod(0o600)
        ops_key.write_text(OPS_KEY + "\n")
        ops = f'port = {self.ops_port}\nkey_file = "{ops_key}"\ndata_dir = "{self.folder}/ops"\n'
        self._start("ops", "ops", ops + kafka)
        access = f'name = "access-1"\nport = {self.access_port}\ncursor_key_file = "{key}"\n'
        self._start("access", "access-1", access + kafka + RIGHTS.format(readers=readers))

    def start_bridge(self, rules: str = RULES) -> Process:
        """The bridge, with these lines of its configuration."""
        access = f"http://127.0.0.1:{self.access_port}"
        return self._start(
            "bridge",
            "bridge-1",
            f'name = "bridge-1"\n[mqtt]\nport = {self.broker.port}\nsite = "floor"\n'
            f'[kafka]\nbootstrap = "{self.node.bootstrap}"\n{rules}\n'
            f'[feed]\naccess_urls = ["{access}"]\nstreams = ["*"]\n',
        )

    def start_gateway(self, name: str, *lines: str, stream: str = "power") -> Process:
        """A gateway; `lines`: more of its configuration. Started again it has the same port."""
        if name not in self.intakes:
            (self.intakes[name],) = free_ports(1)
        source = (
            f'[[source]]\ntype = "http_intake"\nstream = "{stream}"\nthings = "devices"\n'
            f"port = {self.intakes[name]}\n"
        )
        text = (
            f'device = "{name}"\ndata_dir = "{self.folder}/{name}"\n'
            f"[mqtt]\nport = {self.broker.port}\n{source}"
        )
        process = self._start("agent", name, "\n".join([text, *lines]))
        wait_until(lambda: port_is_open(self.intakes[name]), f"the intake of {name}")
        return process

    def post(
        self, gateway: str, readings: Sequence[dict[str, Any]], port: int | None = None
    ) -> bool:
        """Give readings to a gateway, or to another port of it; has it said that it has them?"""
        request = urllib.request.Request(
            f"http://127.0.0.1:{port or self.intakes[gateway]}/",
            json.dumps(readings).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return bool(answer.status < 300)
        except (urllib.error.URLError, OSError):
            return False

    def ops(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask the operations API: status and answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ops_port}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {OPS_KEY}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def device(self, name: str) -> dict[str, Any]:
        """What the operations API says of a device; empty where it knows none."""
        status, found = self.ops("GET", f"/v1/devices/{name}")
        return found if status == 200 else {}

    def events(self, stream: str, where: str = "") -> list[dict[str, Any]]:
        """What a client reads of a stream, from its beginning."""
        query = f"from=earliest&limit=10000{where and '&where=' + urllib.parse.quote(where)}"
        address = f"http://127.0.0.1:{self.access_port}/v1/streams/{stream}/events?{query}"
        try:
            with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
                return list(json.loads(answer.read())["events"])
        except urllib.error.HTTPError:
            return []

    def records(self, stream: str, thing: str) -> list[record.Record]:
        """The records of a thing that the sequencer passed on."""
        with TopicReader(self.kafka, topics.stream_topic(stream), device=thing) as reader:
            return [record.decode(one.value() or b"") for one in reader.read()]

    def values(self, stream: str, thing: str, field_name: str = "n") -> Counter[int]:
        """How often each value of a field was passed on."""
        return Counter(
            int(value)  # type: ignore[arg-type]
            for one in self.records(stream, thing)
            for value in one.frame.fields.get(field_name, ())
        )

    def letters(self, key: str) -> list[DeadLetter]:
        """The dead letters of a device."""
        with TopicReader(self.kafka, topics.DEAD, device=key) as reader:
            return [DeadLetter.from_headers(one.headers() or ()) for one in reader.read()]


@dataclass
class Thing:
    """Numbers its readings, and keeps the ledger: outside of everything that is tried."""

    floor: Floor
    name: str
    unsure: list[dict[str, Any]] = field(default_factory=list)
    """Readings that no gateway has said it has."""
    made: int = 0
    is_numbered: bool = True
    """Does it say its numbers to the gateway?"""

    def reading(self) -> dict[str, Any]:
        """The next one."""
        self.made += 1
        found = {"thing": self.name, "t": time.time_ns() // 1_000_000, "n": self.made}
        return found | ({"thing_seq": self.made} if self.is_numbered else {})

    def send(self, gateway: str, count: int = 1) -> bool:
        """More readings, with what nobody has said that it has."""
        self.unsure += [self.reading() for _ in range(count)]
        is_kept = self.floor.post(gateway, self.unsure)
        if is_kept:
            self.unsure = []
        return is_kept

    def send_until_kept(self, gateway: str, count: int) -> None:
        """So many, one after another."""
        for _ in range(count):
            for _ in itertools.count():
                if self.send(gateway):
                    break
                time.sleep(0.05)


@contextmanager
def floor(folder: Path) -> Iterator[Floor]:
    """Broker and Kafka; the cloud's parts and the gateways are started by the test."""
    with (
        run_mosquitto(folder / "mosquitto") as broker,
        run_kafka(folder / "kafka", *STAYS) as node,
        ExitStack() as stack,
    ):
        yield Floor(broker, node, folder, stack)
