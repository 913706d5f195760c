"""The whole system as processes of its own: real agents, broker, bridges, Kafka, sequencer,
analysis and access servers.

Everything lives in one folder and on free ports, and dies with the test. Parts are started, killed
and started again by name.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.deploy.programs import jars, java
from edgewake.protocol import topics
from edgewake.protocol.ops.query import Registration
from edgewake.simulators import faults
from edgewake.simulators.clients import Server
from edgewake.simulators.faults import Fault
from tests.services import (
    PATIENCE_S,
    Kafka,
    Mosquitto,
    Process,
    free_ports,
    part,
    port_is_open,
    run_kafka,
    run_mosquitto,
)

READY = '"event":"part.ready"'
OPS_KEY = "story-key-0123456789abcdef"
READY_S = 240.0
"""Spark starts in 10 s on two idle cores and in minutes on busy ones; the bound only says when to
give up."""


def _hour_in(hours: int) -> str:
    """An hour of the day, UTC, that begins so much later."""
    first = (time.gmtime().tm_hour + hours) % 24
    return f"{first:02}:00-{(first + 1) % 24:02}:00"


async def until(
    condition: Callable[[], object],
    what: str,
    *,
    timeout_s: float = PATIENCE_S,
    every_s: float = 0.02,
) -> None:
    """Poll a condition while everything else goes on; AssertionError naming `what` after the
    time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        await asyncio.sleep(every_s)


class System:
    """The parts by name. `async with` stops all of them."""

    def __init__(
        self,
        directory: Path,
        *,
        agents: Sequence[str],
        stream: str,
        bridges: int = 2,
        servers: int = 2,
        analysis: str = "",
        followers: Mapping[str, str] | None = None,
    ) -> None:
        """`analysis`: more lines of its configuration.

        `followers`: agents that follow a stream or query, and keep what they get.
        """
        self.directory = directory
        self._analysis = analysis
        self.stream = stream
        self._agents = agents
        self._followers = followers or {}
        self._bridges = [f"bridge-{i + 1}" for i in range(bridges)]
        *self._ports, self._push_port, self._ops_port = free_ports(servers + 2)
        self._stack = AsyncExitStack()
        self._broker: Mosquitto
        self._kafka: Kafka
        self._parts: dict[str, Process] = {}
        self._wanted: set[str] = set()
        self.registered: dict[str, int] = {}
        """Query → when it was registered, which is a part of its topic's name."""

    @property
    def servers(self) -> list[Server]:
        """The access servers."""
        return [("127.0.0.1", port) for port in self._ports]

    @property
    def push_url(self) -> str:
        """The push proxy."""
        return f"http://127.0.0.1:{self._push_port}"

    @property
    def ops_url(self) -> str:
        """The operations API; its key is OPS_KEY."""
        return f"http://127.0.0.1:{self._ops_port}"

    @property
    def kafka_config(self) -> KafkaConfig:
        """How to reach Kafka."""
        return KafkaConfig(bootstrap=self._kafka.bootstrap)

    @property
    def mqtt_port(self) -> int:
        """Of the broker."""
        return self._broker.port

    def input_file(self, agent: str) -> Path:
        """The file that an agent tails."""
        return self.directory / f"{agent}.jsonl"

    def log(self, name: str) -> Path:
        """What a part said."""
        return self.directory / "logs" / f"{name}.log"

    # --- starting and stopping --------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._broker = self._start_broker(self._stack)
        self._kafka = self._start_kafka(self._stack)
        self._parts = {
            "mosquitto": self._broker.process,
            "kafka": self._kafka.process,
            **self._make_parts(),
        }
        self._stack.callback(self._stop_parts)
        return self

    def _start_broker(self, stack: AsyncExitStack) -> Mosquitto:
        return stack.enter_context(run_mosquitto(self.directory / "mosquitto"))

    def _start_kafka(self, stack: AsyncExitStack) -> Kafka:
        return stack.enter_context(run_kafka(self.directory / "kafka"))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    def _stop_parts(self) -> None:
        """Upstream first, all of a kind at once."""
        running = [process for process in reversed(self._parts.values()) if process.is_running()]
        for process in running:
            if process not in (self._broker.process, self._kafka.process):
                process.signal(signal.SIGTERM)
        for process in running:
            process.stop()

    async def until(
        self,
        condition: Callable[[], object],
        what: str,
        *,
        timeout_s: float = PATIENCE_S,
        every_s: float = 0.02,
    ) -> None:
        """Poll a condition; AssertionError also when a part that nobody killed or stopped has
        ended.
        """

        def holds() -> object:
            for name in self._wanted:
                assert self._parts[name].is_running(), (
                    f"{name} ended by itself: {self._parts[name].output()[-3000:]}"
                )
            return condition()

        await until(holds, what, timeout_s=timeout_s, every_s=every_s)

    async def start(self, *names: str) -> None:
        """Start parts (again) and wait until each says that it is ready."""
        before = {name: self._parts[name].output().count(READY) for name in names}
        for name in names:
            self._parts[name].start()
        for name in names:
            await self._until_ready(name, before[name])
        self._wanted.update(names)

    async def _until_ready(self, name: str, before: int) -> None:
        process = self._parts[name]

        def is_ready() -> bool:
            assert process.is_running(), f"{name} ended: {process.output()[-3000:]}"
            if name == "mosquitto":
                return port_is_open(self._broker.port)
            if name == "kafka":
                return port_is_open(self._kafka.port)
            return process.output().count(READY) > before

        await until(is_ready, f"{name} is ready: {process.output()[-1000:]}", timeout_s=READY_S)

    def kill(self, name: str) -> Fault:
        """Kill -9 a part with everything that it started, and prove it."""
        process = self._parts[name]
        self._wanted.discard(name)
        return faults.kill_9_group(
            name, process.pid, lambda: None if process.is_running() else process.stop()
        )

    def stop(self, name: str) -> int:
        """SIGTERM; the exit code."""
        self._wanted.discard(name)
        return self._parts[name].stop()

    def pid(self, name: str) -> int:
        """Process id of a running part."""
        return self._parts[name].pid

    @property
    def names(self) -> list[str]:
        """All parts."""
        return list(self._parts)

    @property
    def own_parts(self) -> list[str]:
        """All parts but the broker and Kafka, downstream first."""
        return [name for name in self._parts if name not in {"mosquitto", "kafka"}]

    # --- configuration ----------------------------------------------------------------------------

    def _mqtt_port_of(self, _name: str) -> int:
        """Where a part reaches the broker."""
        return self._broker.port

    def _bootstrap_of(self, _name: str) -> str:
        """Where a part reaches Kafka."""
        return self._kafka.bootstrap

    def _metrics_of(self, _name: str) -> str:
        """The line of a part's configuration that says where its figures and its health are."""
        return ""

    def _mqtt(self, name: str) -> str:
        return f"[mqtt]\nport = {self._mqtt_port_of(name)}\n"

    def _kafka_table(self, name: str) -> str:
        return f'[kafka]\nbootstrap = "{self._bootstrap_of(name)}"\n'

    def _make_parts(self) -> dict[str, Process]:
        key = self.directory / "cursor.key"
        key.write_text(f"1 {os.urandom(32).hex()}\n")
        key.chmod(0o600)
        mqtt, kafka, metrics = self._mqtt, self._kafka_table, self._metrics_of
        urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        feed = f'[feed]\naccess_urls = {urls}\nstreams = ["*"]\n'
        parts = {}
        for name, port in zip(
            (f"access-{i + 1}" for i in range(len(self._ports))), self._ports, strict=True
        ):
            text = (
                f'name = "{name}"\nhost = "127.0.0.1"\nport = {port}\ncursor_key_file = "{key}"\n'
            )
            parts[name] = self._part("access", name, text + kafka(name))
        leases, ops = self.directory / "lease.keys", self.directory / "ops.key"
        leases.write_text(os.urandom(32).hex() + "\n")
        ops.write_text(OPS_KEY + "\n")
        push = (
            f'name = "push"\nport = {self._push_port}\ncursor_key_file = "{key}"\nlease_key_file '
            f'= "{leases}"\n'
        )
        push += 'allow_hosts = ["127.0.0.1"]\n'
        parts["push"] = self._part("push", "push", push + kafka("push"))
        text = f'port = {self._ops_port}\nkey_file = "{ops}"\ndata_dir = "{self.directory}/ops"\n'
        parts["ops"] = self._part("ops", "ops", text + kafka("ops"))
        analysis = (
            f'data_dir = "{self.directory}/analysis"\njars_dir = '
            f'"{jars.ensure("spark")}"\n{self._analysis}' + metrics("analysis")
        )
        environment = {"JAVA_HOME": str(java.home(java.ensure()))}
        parts["analysis"] = self._part(
            "analysis", "analysis", analysis + kafka("analysis"), environment
        )
        parts["sequencer"] = self._part(
            "sequencer",
            "sequencer",
            'name = "sequencer-1"\n' + metrics("sequencer") + kafka("sequencer"),
        )
        for name in self._bridges:
            parts[name] = self._part(
                "bridge",
                name,
                f'name = "{name}"\n' + metrics(name) + mqtt(name) + kafka(name) + feed,
            )
        for name in self._agents:
            self.input_file(name).touch()
            source = (
                f'[[source]]\ntype = "file_tail"\nstream = "{self.stream}"\npath = '
                f'"{self.input_file(name)}"\npoll_s = 0.05\n'
            )
            parts[name] = self._part(
                "agent",
                name,
                f'device = "{name}"\ndata_dir = "{self.directory}/{name}"\n' + mqtt(name) + source,
            )
        for name, followed in self._followers.items():
            source = (
                '[[source]]\ntype = "subscription"\nstream = "echo"\nfollow = '
                f'["{followed}"]\nbegin = "earliest"\n'
            )
            closed = f"[uplink]\nhours.normal = [{_hour_in(12)!r}]\n"
            text = f'device = "{name}"\ndata_dir = "{self.directory}/{name}"\n{closed}'
            parts[name] = self._part("agent", name, text + mqtt(name) + source)
        return parts

    def _part(
        self, command: str, name: str, text: str, environment: dict[str, str] | None = None
    ) -> Process:
        config = self.directory / f"{name}.toml"
        config.write_text(text)
        process = part(command, config, self.log(name))
        return (
            process
            if environment is None
            else Process(process.command, process.log, env=environment)
        )

    def register(self, name: str, text: str) -> None:
        """Register a query, as the operations API does: one record on `ew.queries`."""
        topic_admin.ensure_topics(self.kafka_config, [topics.QUERIES])
        registration = Registration(name=name, text=text, registered_at=time.time_ns() // 1_000_000)
        self.registered[name] = registration.registered_at
        producer = clients.producer(self.kafka_config, "story")
        producer.produce(topics.QUERIES, registration.model_dump_json().encode(), key=name)
        assert producer.flush(15) == 0
