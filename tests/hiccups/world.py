"""The whole system under live load, each part behind gates of its own, with a supervisor that
starts what ended, and eyes on its health.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path

import httpx
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from edgewake.deploy.parts.lifecycle import ends_in_a_row, restart_delay_s
from edgewake.deploy.programs import java
from edgewake.simulators.faults import group_of
from tests.gate import Gate, gate
from tests.services import Kafka, Mosquitto, Process, free_ports, new_node, running_kafka
from tests.story.system import OPS_KEY, System

AGENTS = ("agent-a", "agent-b")
STREAM = "hiccups"
BRIDGE, SEQUENCER, ANALYSIS, ACCESS, PUSH, OPS, LAKE = (
    "bridge-1",
    "sequencer",
    "analysis",
    "access-1",
    "push",
    "ops",
    "lake",
)
PARTS = (BRIDGE, SEQUENCER, ANALYSIS, ACCESS, PUSH, OPS, LAKE)
LOGS = "logs"
"""Where all parts write what they say."""
DISKS_MIB = {"mosquitto": 64, "kafka": 2048, ANALYSIS: 512, OPS: 256, LAKE: 256, LOGS: 64}
"""What is kept on a disk, by whom, and the size of the file system that each is given of its
own."""
WRITE_NOTHING = (BRIDGE, SEQUENCER, ACCESS, PUSH)
"""Parts that keep all that they keep in Kafka: `written_files` of them is empty."""
ASK_S = 1.0
EVERY_S = 0.25
PAUSE_S = 0.1


class World(System):
    """As `System`, and each part can be cut off."""

    def __init__(self, directory: Path, *, with_disks: bool = False) -> None:
        """`with_disks`: give what keeps something a file system of its own, that can be filled;
        needs root.
        """
        super().__init__(
            directory,
            agents=AGENTS,
            stream=STREAM,
            bridges=1,
            servers=1,
            analysis="calm_trigger_ms = 500\n",
        )
        self._with_disks = with_disks
        self._to_kafka: dict[str, Gate] = {}
        self._to_broker: dict[str, Gate] = {}
        self.controller: Gate
        """On the way of Kafka's broker to its controller."""
        self._ports_of = dict(zip((BRIDGE, SEQUENCER, ANALYSIS, LAKE), free_ports(4), strict=True))
        self.ended: dict[str, int] = {}
        """Part → how often it ended."""
        self._asked: AdminClient

    # --- gates ------------------------------------------------------------------------------------

    def gates_of(self, part: str) -> list[Gate]:
        """Those on all its ways."""
        if part == "kafka":
            return list(self._to_kafka.values())
        if part == "mosquitto":
            return list(self._to_broker.values())
        return [gates[part] for gates in (self._to_kafka, self._to_broker) if part in gates]

    def _start_broker(self, stack: AsyncExitStack) -> Mosquitto:
        if self._with_disks:
            for name, mib in DISKS_MIB.items():
                stack.enter_context(_file_system(self.disk(name), mib))
        return super()._start_broker(stack)

    def _start_kafka(self, stack: AsyncExitStack) -> Kafka:
        node = new_node(self.directory / "kafka")
        ports = dict(zip(PARTS, free_ports(len(PARTS)), strict=True))
        self._to_kafka = {part: stack.enter_context(gate(port)) for part, port in ports.items()}
        self.controller = stack.enter_context(gate(node.controller_port))
        names = {part: part.upper().replace("-", "_") for part in PARTS}
        own = [f"PLAINTEXT://{node.host}:{node.port}"]
        listeners = [*own, f"CONTROLLER://{node.host}:{node.controller_port}"]
        listeners += [f"{names[part]}://{node.host}:{port}" for part, port in ports.items()]
        advertised = [
            *own,
            *(f"{names[part]}://{node.host}:{one.port}" for part, one in self._to_kafka.items()),
        ]
        protocols = [
            "PLAINTEXT:PLAINTEXT",
            "CONTROLLER:PLAINTEXT",
            *(f"{name}:PLAINTEXT" for name in names.values()),
        ]
        more = (
            f"controller.quorum.voters=1@{node.host}:{self.controller.port}",
            f"listeners={','.join(listeners)}",
            f"advertised.listeners={','.join(advertised)}",
            f"listener.security.protocol.map={','.join(protocols)}",
            "num.network.threads=1",
        )
        kafka = stack.enter_context(running_kafka(node, more))
        self._to_broker = {
            part: stack.enter_context(gate(self._broker.port)) for part in (BRIDGE, *AGENTS)
        }
        self._asked = AdminClient(
            {"bootstrap.servers": kafka.bootstrap, "log_level": 0, "error_cb": lambda _: None}
        )
        return kafka

    def _bootstrap_of(self, name: str) -> str:
        return f"127.0.0.1:{self._to_kafka[name].port}"

    def _mqtt_port_of(self, name: str) -> int:
        return self._to_broker[name].port

    def _metrics_of(self, name: str) -> str:
        return f"metrics_port = {self._ports_of[name]}\n"

    def _make_parts(self) -> dict[str, Process]:
        lake = (
            f'data_dir = "{self.directory}/lake"\nevery_s = 2\n'
            + self._metrics_of(LAKE)
            + self._kafka_table(LAKE)
        )
        return {**super()._make_parts(), LAKE: self._part("lake", LAKE, lake)}

    def disk(self, part: str) -> Path:
        """Where it keeps what it keeps."""
        return self.directory / part

    def written_files(self, part: str) -> set[str]:
        """The files that its processes have open to write, but its log."""
        return {
            target
            for pid in group_of(self.pid(part))
            for target in _open_to_write(pid)
            if target != str(self.log(part))
        }

    @contextmanager
    def twin(self, part: str) -> Iterator[Process]:
        """Another process of a part, of its name, on ports and in a folder of its own; it runs."""
        config = self.directory / f"{part}.toml"
        text = config.read_text("utf-8")
        text = text.replace(f'"{self.disk(part)}"', f'"{self.disk(part)}-twin"')
        (port,) = free_ports(1)
        for taken in (*self._ports_of.values(), *self._ports, self._push_port, self._ops_port):
            text = text.replace(f"port = {taken}\n", f"port = {port}\n")
        own = self.directory / f"{part}-twin.toml"
        own.write_text(text, "utf-8")
        command = [str(own) if word == str(config) else word for word in self._parts[part].command]
        environment = {"JAVA_HOME": str(java.home(java.ensure()))}
        with Process(command, self.log(f"{part}-twin"), env=environment) as process:
            yield process

    def brokers(self) -> dict[int, object]:
        """Those that Kafka tells of."""
        fresh = AdminClient(
            {"bootstrap.servers": self._kafka.bootstrap, "log_level": 0, "error_cb": lambda _: None}
        )
        with suppress(KafkaException):
            return dict(fresh.list_topics(timeout=ASK_S).brokers)
        return {}

    # --- the supervisor ---------------------------------------------------------------------------

    async def start_all(self) -> None:
        """Everything, and wait until it is ready."""
        await self.start(ACCESS, PUSH, OPS, ANALYSIS, SEQUENCER, BRIDGE, LAKE, *AGENTS)
        self._wanted.clear()  # from now on what ends is started again, and no failure

    async def supervise(self) -> None:
        """Start again what ended, after as long as `edgewake up` waits.

        A part of which a kill was not noticed by somebody else is.
        """
        ends: dict[str, int] = {}
        started: dict[str, float] = dict.fromkeys(self._parts, time.monotonic())
        due: dict[str, float] = {}
        while True:
            now_s = time.monotonic()
            for name, process in self._parts.items():
                if process.is_running():
                    continue
                if name not in due:
                    ends[name] = ends_in_a_row(ends.get(name, 0), now_s - started[name])
                    due[name] = now_s + restart_delay_s(ends[name], 0.5)
                    self.ended[name] = self.ended.get(name, 0) + 1
                elif now_s >= due[name]:
                    del due[name]
                    started[name] = now_s
                    process.start()
            await asyncio.sleep(PAUSE_S)

    # --- health -----------------------------------------------------------------------------------

    def _ready_urls(self) -> dict[str, str]:
        urls = {name: f"http://127.0.0.1:{port}" for name, port in self._ports_of.items()}
        host, port = self.servers[0]
        return urls | {ACCESS: f"http://{host}:{port}", PUSH: self.push_url, OPS: self.ops_url}

    async def unready(self, client: httpx.AsyncClient) -> dict[str, str]:
        """Part → why it is not ready, in its own words; those that are ready are left out."""

        async def ask(name: str, url: str) -> tuple[str, str]:
            try:
                answer = await client.get(f"{url}/readyz", timeout=ASK_S)
            except httpx.HTTPError as error:
                return name, f"({type(error).__name__})"
            return name, "" if answer.status_code == 200 else str(
                answer.json().get("detail", answer.text)
            )

        found = await asyncio.gather(*(ask(name, url) for name, url in self._ready_urls().items()))
        return {name: why for name, why in found if why}

    async def queries(self) -> dict[str, dict[str, object]]:
        """Query → what the operations API says of it; empty where it does not answer."""
        with contextlib.suppress(httpx.HTTPError, KeyError):
            async with httpx.AsyncClient(timeout=5, headers={"X-API-Key": OPS_KEY}) as http:
                answer = await http.get(f"{self.ops_url}/v1/queries")
            return {query["name"]: query for query in answer.json()["items"]}
        return {}


def _open_to_write(pid: int) -> Iterator[str]:
    """Of regular files that have a name."""
    for entry in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(OSError):  # closed meanwhile
            status = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text()
            flags = int(status.partition("flags:")[2].split()[0], 8)
            about, target = entry.stat(), str(entry.readlink())
            if stat.S_ISREG(about.st_mode) and about.st_nlink and flags & os.O_ACCMODE:
                yield target


@contextmanager
def _file_system(folder: Path, mib: int) -> Iterator[None]:
    folder.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "hiccups", str(folder)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def may_mount() -> bool:
    """May we make file systems?"""
    return os.geteuid() == 0
