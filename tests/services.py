"""Real services for tests and benchmarks: each runs in a folder of its own, on free ports, and dies
with the process that started it.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from edgewake.deploy.programs import jars, java, kafka_node, mosquitto
from tests.gate import Gate, gate

PATIENCE_S = 225.0
"""Until a test gives up what does not come. Long: a busy machine is slow, and no test that passes
waits it out. An analysis that takes over with all kinds of queries, beside five others, was seen to
take 105 s on a machine half as fast as usual."""
POLL_S, POLL_S_MAX, POLL_SHARE, POLL_LATE = 0.02, 0.5, 9.0, 0.05
"""Between two looks at what a test waits for: nine times the processor time of a look and a
twentieth of the time waited, within these bounds. A look often costs the part that is asked more
than the test, and what it waits for needs the processor."""
LONG_S = 10.0
"""From here on a wait that ended is worth a line."""
STOP_S = 15.0
QUICK = "EDGEWAKE_QUICK"
"""Set by `make quick`."""
PORTS = 2_000
"""Ports of one test process."""
STAYS = ("broker.session.timeout.ms=9000", "broker.heartbeat.interval.ms=2000")
"""Properties of a Kafka that no test kills, for `run_kafka`: Kafka's own figures. The demo's broker
says four times as often that it lives, so that one that died is soon let in again; an idle node
spends a quarter of its processor time on that."""
DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")
"""Runs what follows in its own place. SIGKILL for it when the *thread* that started it ends in any
way, kill -9 of the process included.

To say so by `preexec_fn` made subprocess copy the tables of the whole test process's memory at each
start: 18 ms of processor, not 2.
"""


_given: set[int] = set()
"""Ports that this process gave away."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that are free now, outside the range the kernel gives to outgoing
    connections.

    A port is free until its service has bound it, and again while that service is killed. So test
    processes that run side by side take ports from ranges of their own, and one process gives each
    port once until it has given all.
    """
    sockets: list[socket.socket] = []
    ports: list[int] = []
    first = 10_000 + PORTS * (
        int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
    )
    at = (os.getpid() * 131 + time.monotonic_ns() // 1000) % PORTS
    looked = 0
    while len(ports) < count:
        at = (at + 1) % PORTS
        candidate = first + at
        looked += 1
        if looked == PORTS:
            _given.clear()
        assert looked <= 3 * PORTS, f"no port is free from {first} to {first + PORTS}"
        if candidate in _given:
            continue
        listener = socket.socket()
        try:
            listener.bind(("127.0.0.1", candidate))
        except OSError:
            listener.close()
            continue
        sockets.append(listener)
        ports.append(candidate)
        _given.add(candidate)
    for listener in sockets:
        listener.close()
    return ports


def wait_until(
    condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S
) -> None:
    """Poll a condition until it holds; AssertionError naming `what` after the time.

    See POLL_S for how often it is asked.
    """
    began = time.monotonic()
    while True:
        used = time.process_time()
        is_there = condition()
        waited = time.monotonic() - began
        if is_there:
            if waited > LONG_S:
                # Pytest shows it of a test that failed.
                sys.stderr.write(f"{waited:.0f} s: {what}\n")
            return
        assert waited < timeout_s, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(pause_s(waited, used=time.process_time() - used))


def pause_s(waited: float, *, used: float = 0.0) -> float:
    """Seconds until the next look, after so many seconds of waiting; a look uses so many of
    processor time.
    """
    return min(POLL_S_MAX, max(POLL_S, POLL_SHARE * used, POLL_LATE * waited))


def port_is_open(port: int, host: str = "127.0.0.1") -> bool:
    """Does somebody listen there?"""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def freeze(pid: int) -> None:
    """Stop a process, and wait until each of its threads stands still. `thaw` lets it go on.

    SIGSTOP alone does not: the thread that is to take it needs a processor for that, and meanwhile
    the others go on and answer.
    """
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: thread_states(pid) == {"T"}, f"all threads of {pid} stand still")


def thaw(pid: int) -> None:
    """Let a frozen process go on."""
    os.kill(pid, signal.SIGCONT)


def thread_states(pid: int) -> set[str]:
    """A letter for each state that a thread of it is in: R runs, S sleeps, T is stopped
    (proc(5)).
    """
    states = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            states.add(_state(thread))
    return states


def words_of(process: psutil.Process) -> list[str]:
    """The command that it runs; nothing of one that has just ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def is_alive(pid: int) -> bool:
    """Is there such a process, and is it no zombie?"""
    try:
        return _state(Path(f"/proc/{pid}")) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _state(folder: Path) -> str:
    """Of a process or a thread; behind its name, which may hold spaces and parentheses."""
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


class Process:
    """A child with its output in a file, that can be started, killed and started again.

    Start it from a thread that lives on.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.command = list(command)
        self.log = log
        self._env = None if env is None else {**os.environ, **env}
        self._cwd = cwd
        self._child: subprocess.Popen[bytes] | None = None
        self._began_at = 0
        """Where in the log the newest start begins: another process may have had the file, or this
        one before."""

    @property
    def pid(self) -> int:
        """Of the running child."""
        assert self._child is not None, "not started"
        return self._child.pid

    def start(self) -> Process:
        """Start the child; its output is appended to the log."""
        assert not os.environ.get(QUICK), (
            "`make quick` starts no service: mark this test with pytest.mark.services"
        )
        assert self._child is None or self._child.poll() is not None, "is running"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self._began_at = out.tell()
            self._child = subprocess.Popen(
                [*DIE_WITH_PARENT, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._env,
                cwd=self._cwd,
                start_new_session=True,
            )
        return self

    def is_running(self) -> bool:
        """Has it not ended yet?"""
        return self._child is not None and self._child.poll() is None

    def signal(self, number: int) -> None:
        """Send a signal to the child."""
        os.kill(self.pid, number)

    def freeze(self) -> None:
        """Stop the child until `thaw`; nothing of it runs when this returns."""
        freeze(self.pid)

    def thaw(self) -> None:
        """Let the frozen child go on."""
        thaw(self.pid)

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        assert self._child is not None, "not started"
        assert self._child.poll() is None, "is not running: the fault would not fire"
        os.killpg(self.pid, signal.SIGKILL)
        self._child.wait(STOP_S)

    def stop(self) -> int:
        """SIGTERM, and SIGKILL for what does not obey; the exit code."""
        assert self._child is not None, "not started"
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
                self._child.wait(STOP_S)
        return self._child.returncode

    def wait_for(self, text: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until it says `text` after its newest start; AssertionError with the log's end when
        it ends before or time is up.
        """
        began = time.monotonic()
        while text.encode() not in self.log.read_bytes()[self._began_at :]:
            assert self.is_running(), (
                f"{self.command[:3]} ended with {self._child and self._child.returncode}: "
                f"{self.output()[-2000:]}"
            )
            waited = time.monotonic() - began
            assert waited < timeout_s, (
                f"no {text!r} within {timeout_s:.0f} s: {self.output()[-2000:]}"
            )
            time.sleep(pause_s(waited))

    def output(self) -> str:
        """What it said so far."""
        return self.log.read_text("utf-8", "replace") if self.log.exists() else ""

    def __enter__(self) -> Process:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def part(
    name: str, config: Path, log: Path, *more: str, env: Mapping[str, str] | None = None
) -> Process:
    """`edgewake NAME --config FILE`, not started; `with` it, then
    `wait_for('"event":"part.ready"')`.
    """
    return Process(
        [sys.executable, "-m", "edgewake.deploy.cli", name, "--config", str(config), *more],
        log,
        env=env,
    )


@dataclass
class Mosquitto:
    """A running Mosquitto."""

    port: int
    process: Process
    host: str = "127.0.0.1"

    def start(self) -> None:
        """Start it (again) and wait until it takes connections."""
        self.process.start()
        wait_until(
            lambda: port_is_open(self.port) or self._explain(), "Mosquitto takes connections"
        )

    def _explain(self) -> bool:
        assert self.process.is_running(), f"Mosquitto ended: {self.process.output()[-1000:]}"
        return False


@dataclass
class Kafka:
    """A running Kafka."""

    node: kafka_node.KafkaNode
    process: Process

    @property
    def bootstrap(self) -> str:
        """host:port for clients."""
        return self.node.bootstrap

    @property
    def port(self) -> int:
        """The broker's port."""
        return self.node.port

    def start(self) -> None:
        """Start it (again) and wait until it serves."""
        self.process.start()
        wait_until(lambda: port_is_open(self.port) or self._explain(), "Kafka takes connections")

    def _explain(self) -> bool:
        assert self.process.is_running(), f"Kafka ended: {self.process.output()[-2000:]}"
        return False


_java = cache(java.ensure)
_mosquitto = cache(mosquitto.ensure)
"""Found once in a test process: both run the program to hear its version."""


@contextmanager
def run_mosquitto(directory: Path, *more: str) -> Iterator[Mosquitto]:
    """A Mosquitto with the demo's configuration, and `more` lines of it that replace those of the
    same key.
    """
    (port,) = free_ports(1)
    broker = mosquitto.Broker(program=_mosquitto(), directory=directory, port=port)
    mosquitto.prepare(broker)
    if more:
        file = directory / "mosquitto.conf"
        keys = {line.split()[0] for line in more}
        kept = [
            line
            for line in file.read_text("utf-8").splitlines()
            if line.split()[:1] and line.split()[0] not in keys
        ]
        file.write_text("\n".join([*kept, *more, ""]), "utf-8")
    service = Mosquitto(port, Process(mosquitto.command(broker), directory / "mosquitto.log"))
    try:
        service.start()
        yield service
    finally:
        service.process.stop()


@contextmanager
def run_kafka(directory: Path, *more: str, java_options: Sequence[str] = ()) -> Iterator[Kafka]:
    """A single-node Kafka with the demo's properties, and `more` lines of them that replace those
    of the same key.
    """
    with running_kafka(new_node(directory), more, java_options) as service:
        yield service


@contextmanager
def run_kafka_that_can_be_shut_out(directory: Path, *more: str) -> Iterator[tuple[Kafka, Gate]]:
    """A Kafka whose broker reaches its own controller through a gate.

    While the gate is shut no sign of life of the broker arrives, and after two seconds the
    controller shuts it out ("fenced"): as on a machine under load, where both are silent to one
    another for a while. The broker then answers that there is no broker.
    """
    node = new_node(directory)
    with gate(node.controller_port) as way:
        voters = f"controller.quorum.voters=1@{node.host}:{way.port}"
        with running_kafka(node, (voters, *more)) as service:
            yield service, way


def new_node(directory: Path) -> kafka_node.KafkaNode:
    """On free ports."""
    port, controller_port = free_ports(2)
    return kafka_node.KafkaNode(
        java=_java(),
        jars=jars.ensure("kafka"),
        directory=directory,
        port=port,
        controller_port=controller_port,
    )


@contextmanager
def running_kafka(
    node: kafka_node.KafkaNode, more: Sequence[str], java_options: Sequence[str] = ()
) -> Iterator[Kafka]:
    """This one, with `more` lines of properties that replace those of the same key."""
    directory = node.directory
    prepare_kafka(node)
    if more:
        with (directory / "server.properties").open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in more)
    program, *arguments = kafka_node.command(node)
    service = Kafka(node, Process([program, *java_options, *arguments], directory / "kafka.log"))
    try:
        service.start()
        yield service
    finally:
        service.process.stop()


_formatted: dict[str, bytes] = {}
"""What Kafka's tool writes into a new storage, by file: a JVM of its own for two small files, so it
runs once in a test process."""


def prepare_kafka(node: kafka_node.KafkaNode) -> None:
    """`kafka_node.prepare`, with a copy of the storage that was formatted before, under a cluster
    id of its own.
    """
    data = node.directory / "data"
    if not data.exists():
        data.mkdir(parents=True)
        for name, content in _formatted.items():
            (data / name).write_bytes(
                re.sub(
                    rb"(?m)^cluster\.id=.*",
                    b"cluster.id=" + kafka_node.new_cluster_id().encode(),
                    content,
                )
            )
    kafka_node.prepare(node)
    if not _formatted:
        _formatted.update(
            (file.name, file.read_bytes()) for file in data.iterdir() if file.is_file()
        )
