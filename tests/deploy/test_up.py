"""`edgewake up` as a user runs it: real processes, real signals."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.services import PATIENCE_S, Process, free_ports, port_is_open, wait_until

MQTT, KAFKA = 10, 20


PORTS = (0, 1, 2, 3, 10, 11, 12, 20, 21, 30, 31, 32, 33)
"""All that may be opened, from the base on."""


def port_base() -> int:
    """A base with all its ports free at the moment."""
    while True:
        (base,) = free_ports(1)
        if not any(port_is_open(base + offset) for offset in PORTS):
            return base


def command(data: Path, base: int, *more: str) -> list[str]:
    """The arguments of one `edgewake up`."""
    return [
        sys.executable,
        "-m",
        "edgewake.deploy.cli",
        "up",
        "--data",
        str(data),
        "--port-base",
        str(base),
        *more,
    ]


def run(data: Path, base: int, *more: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    return subprocess.run(
        command(data, base, *more), capture_output=True, text=True, timeout=400, check=False
    )


@contextmanager
def running(data: Path, base: int, *more: str, log: Path) -> Iterator[Process]:
    """Run it until the block ends."""
    with Process(command(data, base, *more), log) as process:
        process.wait_for("Edgewake is running.", timeout_s=300)
        yield process


def lives(process: psutil.Process) -> bool:
    """Is it there, and more than an entry that init has not buried yet?"""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below one."""
    return psutil.Process(pid).children(recursive=True)


def identity(data: Path) -> tuple[str, str, str]:
    """What a data folder must not change: Kafka's cluster, the cursors' key, the operations'
    key.
    """
    found = re.search(
        "^cluster.id=.*", (data / "kafka" / "data" / "meta.properties").read_text(), re.MULTILINE
    )
    assert found
    return (
        found[0],
        (data / "secrets" / "cursor.key").read_text(),
        (data / "secrets" / "ops.key").read_text(),
    )


def test_ctrl_c_ends_everything_the_next_start_goes_on_and_kill_9_leaves_nothing(
    tmp_path: Path,
) -> None:
    """In one data folder, because each start of Kafka takes seconds."""
    base, data, log = port_base(), tmp_path / "data", tmp_path / "log"
    both = ("--only", "mosquitto", "--only", "kafka")
    with running(data, base, *both, log=log) as process:
        assert port_is_open(base + MQTT)
        assert port_is_open(base + KAFKA)
        below = descendants(process.pid)
        process.signal(signal.SIGINT)
        wait_until(lambda: not process.is_running(), "it ended")
        assert process.stop() == 0
    assert not any(map(lives, below))
    output = process.output()
    assert output.index("stopping, upstream first") < output.index("all parts have stopped")
    before = identity(data)
    assert data.stat().st_mode & 0o777 == 0o700

    with running(data, base, *both, log=tmp_path / "second") as process:
        assert identity(data) == before
        below = descendants(process.pid)
        assert len(below) >= 2
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(lives, below)), "all are gone")
    assert run(data, base, "--only", "mosquitto", "--for", "0.1").returncode == 0


def test_a_data_folder_of_another_version_stops_the_start_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "version").write_text("1000\n")
    done = run(tmp_path, port_base(), "--only", "mosquitto", "--for", "0.1")
    assert done.returncode == 1
    assert re.fullmatch(
        r"edgewake: .* has version 1000 and was written by a newer Edgewake; .* --data\n",
        done.stderr,
    )


def test_a_second_instance_on_the_same_folder_is_refused_and_the_first_goes_on(
    tmp_path: Path,
) -> None:
    base = port_base()
    with running(tmp_path / "data", base, "--only", "mosquitto", log=tmp_path / "log") as process:
        second = run(tmp_path / "data", port_base(), "--only", "mosquitto", "--for", "0.1")
        assert second.returncode == 1
        assert (
            f"edgewake up already runs on {tmp_path / 'data'} (pid {process.pid})" in second.stderr
        )
        assert port_is_open(base + MQTT)


def test_a_port_in_use_is_named_with_its_process_and_nothing_is_left(tmp_path: Path) -> None:
    base = port_base()
    with socket.create_server(("127.0.0.1", base + KAFKA)):
        done = run(tmp_path, base, "--only", "mosquitto", "--only", "kafka", "--for", "0.1")
    assert done.returncode == 1
    assert re.fullmatch(
        rf"edgewake: port {base + KAFKA} \(for kafka\) is in use by \S+ \(pid {os.getpid()}\); "
        r"stop it, .*\n",
        done.stderr,
    ), done.stderr
    assert not port_is_open(base + MQTT)


def test_an_unknown_service_is_a_configuration_error(tmp_path: Path) -> None:
    done = run(tmp_path, port_base(), "--only", "kafak")
    assert (done.returncode, "no such part" in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(tmp_path / "file" / "data", port_base(), "--only", "mosquitto")
    assert done.returncode == 1
    assert re.fullmatch(
        r"edgewake: .*/file/data cannot be written: Not a directory; .*\n", done.stderr
    )


def test_a_part_that_is_killed_comes_back(tmp_path: Path) -> None:
    base = port_base()
    with running(tmp_path / "data", base, "--only", "mosquitto", log=tmp_path / "log") as process:
        (broker,) = [child for child in descendants(process.pid) if child.name() == "mosquitto"]
        broker.kill()
        process.wait_for("mosquitto again", timeout_s=PATIENCE_S)
        assert port_is_open(base + MQTT)
