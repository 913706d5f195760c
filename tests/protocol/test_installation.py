"""Commands without addresses find the system that runs, and no other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgewake.deploy import data_folder
from edgewake.protocol import installation
from edgewake.protocol.installation import Installation
from tests.services import Process, free_ports


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


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("one-key-0000000001 # since May\n# two-key-0000000002\n", "one-key-0000000001"),
        ("ann operate half#other-half-001\nben read a-key-0000000003\n", "half#other-half-001"),
        ("ann operate key-0000000000001\t#x\n", "key-0000000000001"),
    ],
)
def test_a_key_is_read_as_the_operations_api_reads_it(tmp_path: Path, text: str, key: str) -> None:
    """Half a key was shown, which nobody has."""
    file = tmp_path / "keys"
    file.write_text(text)
    assert installation.key_of(file) == key
