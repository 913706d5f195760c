"""The broker of the running system is found."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgewake.protocol import installation
from edgewake.protocol.installation import Installation
from edgewake.simulators.broker_option import address
from tests.protocol.test_installation import command, running
from tests.services import PATIENCE_S, free_ports


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
