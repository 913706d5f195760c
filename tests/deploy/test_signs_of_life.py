"""Signs of life: what a process gives, what /healthz tells of it, and what the broker's and Kafka's
ports answer.
"""

from __future__ import annotations

import fcntl
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from edgewake.cloud import metrics, metrics_port
from edgewake.deploy.parts.child import answers
from edgewake.deploy.plan import KAFKA_API_VERSIONS, MQTT_CONNECT
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.heartbeat import SILENT_S, Heartbeat
from tests.services import Kafka, Process, free_ports, run_mosquitto, wait_until


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    """The other end of NOTIFY_SOCKET."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listener:
        listener.bind("\0" + address[1:] if address.startswith("@") else address)
        yield listener


def received(listener: socket.socket) -> list[bytes]:
    """What came so far."""
    found = []
    while True:
        try:
            found.append(listener.recv(4096))
        except BlockingIOError:
            return found


@pytest.mark.services
def test_the_agent_says_that_it_is_ready_when_it_is_and_not_before(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text(f'device = "d1"\ndata_dir = "{tmp_path}/data"\n[mqtt]\nport = 1\n')
    (tmp_path / "data").mkdir()
    command = [sys.executable, "-m", "edgewake.deploy.cli", "agent", "--config", str(config)]
    signs: list[bytes] = []
    with listening(str(tmp_path / "notify")) as listener:
        agent = Process(command, tmp_path / "log", env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        with (tmp_path / "data" / "lock").open("w") as lock:  # another agent has the directory
            fcntl.flock(lock, fcntl.LOCK_EX)
            agent.start()
            wait_until(lambda: not agent.is_running(), "it gives up")
            assert not any(b"READY=1" in sign for sign in received(listener))
        with agent:
            agent.wait_for('"event":"part.ready"')
            wait_until(
                lambda: (
                    signs.extend(received(listener)) or any(b"READY=1" in sign for sign in signs)
                ),
                "READY=1",
            )


def test_healthz_answers_as_long_as_the_loop_turns() -> None:
    clock, (port,) = FakeClock(), free_ports(1)
    heartbeat = Heartbeat(clock, {})
    metrics_port.serve(
        port,
        lambda: [metrics.gauge("edgewake_test", "a figure", 7)],
        part="test",
        is_alive=heartbeat.is_alive,
    )
    healthz = f"http://127.0.0.1:{port}/healthz"
    assert httpx.get(healthz).status_code == 200
    clock.advance(SILENT_S)
    assert (httpx.get(healthz).status_code, httpx.get(healthz).json()) == (503, {"status": "hangs"})
    assert "edgewake_test 7.0" in httpx.get(f"http://127.0.0.1:{port}/metrics").text
    heartbeat.beat()
    assert httpx.get(healthz).status_code == 200


def test_metrics_listen_where_the_configuration_says() -> None:
    (port,) = free_ports(1)
    metrics_port.serve(port, list, part="test", host="0.0.0.0")
    assert httpx.get(f"http://{_address()}:{port}/healthz").status_code == 200


def _address() -> str:
    """An address of this machine that is not its loopback, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


async def judged(port: int, request: bytes, process: Process) -> list[bool]:
    """Does it answer while it lives, while it is stopped, and when it goes on?"""
    seen = [await answers(port, request, within_s=20)]
    process.freeze()
    try:
        seen.append(await answers(port, request, within_s=1))
    finally:
        process.thaw()
    return [*seen, await answers(port, request, within_s=20)]


async def test_a_broker_answers_while_it_lives(tmp_path: Path) -> None:
    with run_mosquitto(tmp_path) as broker:
        assert await judged(broker.port, MQTT_CONNECT, broker.process) == [True, False, True]


async def test_kafka_answers_while_it_lives(kafka: Kafka) -> None:
    assert await judged(kafka.port, KAFKA_API_VERSIONS, kafka.process) == [True, False, True]
