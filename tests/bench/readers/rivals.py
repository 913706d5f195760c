"""Rivals of the access server, started: each is fed from the same Kafka topic."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from edgewake.protocol import topics
from tests.services import Process, free_ports, port_is_open, wait_until

Rival: TypeAlias = Callable[[Path, str, str], AbstractContextManager[tuple[int, int]]]
"""Starts one in a folder, for a Kafka and a stream: the process to measure, and its port."""
CENTRIFUGO_VERSION: Final = "v6.9.1"
HOW: Final = f"go install github.com/centrifugal/centrifugo/v6@{CENTRIFUGO_VERSION}"
MERCURE_VERSION: Final = "v0.20.0"
"""A version in which the hub is a program of its own; newer ones are a part of Caddy."""
HOW_MERCURE: Final = f"go install github.com/dunglas/mercure/cmd/mercure@{MERCURE_VERSION}"


@contextmanager
def nchan(folder: Path, bootstrap: str, stream: str) -> Iterator[tuple[int, int]]:
    """The worker's process id, and the port: subscribers of all its protocols at `/events`."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.bench.sse_nchan", bootstrap]
    command += [topics.stream_topic(stream), str(port), str(folder / f"nchan-{port}")]
    with Process(command, folder / f"nchan-{port}.log") as process:
        process.wait_for("nginx ")
        wait_until(lambda: port_is_open(port), "nginx serves")
        yield _worker(int(process.output().split("nginx ")[1].split()[0])), port


def _worker(master: int) -> int:
    """nginx's one worker does the work."""
    children: list[str] = []

    def found() -> bool:
        children[:] = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        return bool(children)

    wait_until(found, "nginx has a worker")
    return int(children[0])


def centrifugo_program() -> str | None:
    """Centrifugo where it is installed; None: HOW says what brings it."""
    return _go_program("centrifugo")


def mercure_program() -> str | None:
    """Mercure's hub where it is installed; None: HOW_MERCURE says what brings it."""
    return _go_program("mercure")


def _go_program(name: str) -> str | None:
    found = shutil.which(name) or Path("~/go/bin", name).expanduser()
    return str(found) if Path(found).exists() else None


@contextmanager
def centrifugo(folder: Path, bootstrap: str, stream: str) -> Iterator[tuple[int, int]]:
    """Its process id and port; it must be installed."""
    program = centrifugo_program()
    assert program is not None, HOW
    with _served("centrifugo", program, folder, bootstrap, stream) as found:
        yield found


@contextmanager
def mercure(folder: Path, bootstrap: str, stream: str) -> Iterator[tuple[int, int]]:
    """Its process id and port; it must be installed."""
    program = mercure_program()
    assert program is not None, HOW_MERCURE
    with _served("mercure", program, folder, bootstrap, stream) as found:
        yield found


@contextmanager
def _served(
    name: str, program: str, folder: Path, bootstrap: str, stream: str
) -> Iterator[tuple[int, int]]:
    (port,) = free_ports(1)
    command = [sys.executable, "-m", f"tests.bench.readers.{name}", program, bootstrap]
    command += [topics.stream_topic(stream), str(port), str(folder / f"{name}-{port}")]
    with Process(command, folder / f"{name}-{port}.log") as process:
        process.wait_for(f"{name} ")
        wait_until(lambda: port_is_open(port), f"{name} serves")
        yield int(process.output().split(f"{name} ")[1].split()[0]), port
