"""A Kafka of its own: whoever judges there judges all rules, with its own allowed hosts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.field_type import FieldType
from edgewake.protocol.frames.frame import Frame, encode
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.frames.stream import FieldInfo, Stream
from tests.ops.alerts.receivers import Hook, Mail, hook, mail
from tests.ops.service import Ops, running
from tests.services import STAYS, Kafka, run_kafka, wait_until

_numbers = itertools.count(1)
SEAL_KEY = "ab" * 32


@dataclass
class Alerts:
    """An operations server that judges, and what writes readings for it."""

    ops: Ops
    config: KafkaConfig

    def __post_init__(self) -> None:
        self._producer = clients.producer(self.config, "test-alerts")

    def ask(self, method: str, path: str, body: object = None, status: int = 200) -> Any:
        """The answer's body; AssertionError for another status."""
        answer = self.ops.client.request(method, path, json=body)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json() if answer.content else None

    def stream(self) -> str:
        """A new stream, in the catalogue."""
        name = f"room_{next(_numbers)}"
        row = Stream(name=name, fields={"temperature": FieldInfo(type=FieldType.NUMBER, unit="°C")})
        self._put(topics.STREAMS, name, row.model_dump_json().encode())
        topic_admin.ensure_topics(self.config, [topics.stream_topic(name)])
        wait_until(
            lambda: self.ops.client.get(f"/v1/streams/{name}").status_code == 200, "it is known"
        )
        return name

    def send(
        self, stream: str, device: str, *values: float, ago_s: float = 0, is_last: bool = True
    ) -> None:
        """Readings of a device, as the sequencer passes them on; the last of several waits."""
        now = time.time_ns() // 1_000_000 - round(ago_s * 1000)
        frame = Frame(
            epoch=1,
            frame=(number := next(_numbers)),
            seq=number,
            t=[now] * len(values),
            fields={"temperature": list(values)},
        )
        value = records.encode(
            device=device,
            stream=stream,
            mode=Mode.ACK,
            sent_at=None,
            received_at=now,
            frame_bytes=encode(frame),
        )
        self._put(topics.stream_topic(stream), device, value, now, is_last=is_last)

    def put(self, topic: str, key: str, value: bytes | None) -> None:
        """A row."""
        self._put(topic, key, value)

    def _put(
        self, topic: str, key: str, value: bytes | None, at: int = 0, *, is_last: bool = True
    ) -> None:
        more = {"timestamp": at} if at else {}
        self._producer.produce(topic, key=key, value=value, **more)
        if is_last:
            assert self._producer.flush(10) == 0

    def rule(self, name: str, **text: Any) -> str:
        """A rule that is judged: it is followed when this returns."""
        self.ask("PUT", f"/v1/alerts/{name}", {"group_s": 0, **text})
        self.until_judged()
        return name

    def until_judged(self) -> None:
        """Wait until the server that judges has taken the rules there are."""
        probe = f"probe_{next(_numbers)}"
        self.ask("PUT", f"/v1/alerts/{probe}", {"problems": ["lease"]})
        answers = []

        def is_heard() -> bool:
            answer = self.ops.client.post(f"/v1/alerts/{probe}/ack", json={})
            answers.append(answer.text)
            return answer.status_code == 204

        wait_until(is_heard, "a word is heard")
        self.ask("DELETE", f"/v1/alerts/{probe}", status=204)

    def destination(self, kind: str, address: str, secret: str | None = None) -> str:
        """A destination of its own: what an earlier test left to be told goes elsewhere."""
        name = f"{kind}_{next(_numbers)}"
        body = {"address": address} | ({"secret": secret} if secret else {})
        self.ask("PUT", f"/v1/destinations/{name}", body)
        return name

    def states(self, rule: str) -> dict[str, str]:
        """Key → state."""
        found = self.ask("GET", f"/v1/alerts/{rule}")["alerts"]
        return {one["key"]: one["state"] for one in found}


def configuration(directory: Path) -> str:
    """Lines of a server that may tell this machine."""
    (directory / "seal.key").write_text(SEAL_KEY + "\n")
    return f'seal_key_file = "{directory / "seal.key"}"\nalert_hosts = ["127.0.0.1"]\n'


@pytest.fixture(scope="package")
def alerts_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with run_kafka(tmp_path_factory.mktemp("alerts-kafka"), *STAYS) as service:
        yield service


class SharedServer:
    """The operations server that tests share while none of them has its own. Of two on one Kafka
    one judges, and a test that kills a server wants to know which.
    """

    def __init__(self, config: KafkaConfig, directory: Path) -> None:
        self._config, self._directory = config, directory
        self._running: ExitStack | None = None
        self._alerts: Alerts | None = None

    def start(self) -> Alerts:
        """The one that runs, or the next one."""
        if self._running is None or self._alerts is None:
            lines = configuration(self._directory)
            self._running = ExitStack()
            ops = self._running.enter_context(
                running(self._config.bootstrap, self._directory, lines)
            )
            self._alerts = Alerts(ops, self._config)
        return self._alerts

    def stop(self) -> None:
        """Leave Kafka to others."""
        if self._running is not None:
            self._running.close()
        self._running = self._alerts = None


@pytest.fixture(scope="package")
def shared_server(
    alerts_kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedServer]:
    config = KafkaConfig(bootstrap=alerts_kafka.bootstrap)
    server = SharedServer(config, tmp_path_factory.mktemp("alerts-ops"))
    yield server
    server.stop()


@pytest.fixture
def kafka_of_alerts(alerts_kafka: Kafka, shared_server: SharedServer) -> KafkaConfig:
    """For a test that starts its own servers: no other one judges beside them."""
    shared_server.stop()
    return KafkaConfig(bootstrap=alerts_kafka.bootstrap)


@pytest.fixture
def unique() -> Callable[[str], str]:
    return lambda prefix: f"{prefix}_{next(_numbers)}"


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as made:
        yield made


@pytest.fixture
def mailbox() -> Iterator[Mail]:
    with mail() as made:
        yield made


@pytest.fixture
def alerts(shared_server: SharedServer) -> Alerts:
    return shared_server.start()
