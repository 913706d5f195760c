"""Rivals of the access server, started: each is fed from the same Kafka topic."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edgewake.protocol import topics
from tests.services import Process, free_ports, port_is_open, wait_until

CENTRIFUGO_VERSION: Final = "v6.9.1"
HOW: Final = f"go install github.com/centrifugal/centrifugo/v6@{CENTRIFUGO_VERSION}"


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
    found = shutil.which("centrifugo") or Path("~/go/bin/centrifugo").expanduser()
    return str(found) if Path(found).exists() else None


@contextmanager
def centrifugo(folder: Path, bootstrap: str, stream: str) -> Iterator[tuple[int, int]]:
    """Its process id and port; it must be installed."""
    (port,) = free_ports(1)
    program = centrifugo_program()
    assert program is not None, HOW
    command = [sys.executable, "-m", "tests.bench.readers.centrifugo", program, bootstrap]
    command += [topics.stream_topic(stream), str(port), str(folder / f"centrifugo-{port}")]
    with Process(command, folder / f"centrifugo-{port}.log") as process:
        process.wait_for("centrifugo ")
        wait_until(lambda: port_is_open(port), "centrifugo serves")
        yield int(process.output().split("centrifugo ")[1].split()[0]), port
