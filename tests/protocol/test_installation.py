"""Commands without addresses find the system that runs, and no other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgewake.deploy import data_folder
from edgewake.protocol import installation
from edgewake.protocol.installation import Installation
from edgewake.simulators.broker_option import address
from tests.services import PATIENCE_S, Process, free_ports


@contextmanager
def running(data: Path, system: Installation) -> Iterator[None]:
    """A folder as a running `edgewake up` has it."""
    with data_folder.opened(data):
        installation.write(data, system)
        yield


def command(data: Path, *arguments: str) -> list[str]:
    return [
        "env",
        f"{installation.DATA_VARIABLE}={data}",
        sys.executable,
        "-m",
        "edgewake.deploy.cli",
        *arguments,
    ]


def test_a_folder_counts_only_while_its_process_lives(tmp_path: Path) -> None:
    system = Installation(access=("http://127.0.0.1:1",), mqtt="127.0.0.1:2")
    environment = {installation.DATA_VARIABLE: str(tmp_path)}
    with running(tmp_path, system):
        assert installation.find(environment) == system
    assert installation.find(environment) == Installation()


@pytest.mark.services
def test_tail_asks_the_access_servers_of_the_running_system(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    system = Installation(access=(f"http://127.0.0.1:{port}",))
    with (
        running(tmp_path, system),
        Process(command(tmp_path, "tail", "weather"), tmp_path / "log") as process,
    ):
        process.wait_for(f"edgewake tail: lost http://127.0.0.1:{port}")


def test_replay_and_simulate_send_to_the_broker_of_the_running_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGEWAKE_MQTT", raising=False)
    monkeypatch.setenv(installation.DATA_VARIABLE, str(tmp_path))
    assert address(None, None) == ("127.0.0.1", 1883)
    with running(tmp_path, Installation(mqtt="127.0.0.1:4711")):
        assert address(None, None) == ("127.0.0.1", 4711)
        assert address("broker.example", 1) == ("broker.example", 1)
        monkeypatch.setenv("EDGEWAKE_MQTT", "other.example:5")
        assert address(None, None) == ("other.example", 5)


def test_replay_names_the_broker_that_is_away(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "drive.csv").write_text("t,speed\n2024-01-01T00:00:00Z,1\n")
    with running(tmp_path / "data", Installation(mqtt=f"127.0.0.1:{port}")):
        replay = command(
            tmp_path / "data", "replay", str(tmp_path / "drive.csv"), "--patience", "1"
        )
        done = subprocess.run(replay, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, f"does the broker at 127.0.0.1:{port} run" in done.stderr) == (
        1,
        True,
    ), done.stderr
