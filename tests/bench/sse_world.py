"""What the benchmarks of event streams share: an access server, a writer and a process of readers
that is told what to do.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from tests.bench.figures import cpu_s
from tests.services import Process, free_ports

_numbers = count()
"""Each process has a log of its own: one is waited for by what it writes there."""


@contextlib.contextmanager
def access(
    folder: Path, bootstrap: str, *, name: str = "access", settings: str = "", hub: str = "{}"
) -> Iterator[tuple[Process, int]]:
    """An access server and its port; `hub`: bounds that have no key, as a JSON object."""
    (port,) = free_ports(1)
    name = f"{name}-{next(_numbers)}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cursor.key").write_text(f"1 {'5e' * 32}\n")
    config = folder / f"{name}.toml"
    key = f'cursor_key_file = "{folder}/cursor.key"'
    config.write_text(f'port = {port}\n{key}\n{settings}\n[kafka]\nbootstrap = "{bootstrap}"\n')
    command = [sys.executable, "-m", "tests.access.tuned_server", str(config), hub]
    with Process(command, folder / f"{name}.log") as process:
        process.wait_for('"part.ready"')
        yield process, port


@contextlib.contextmanager
def writing(bootstrap: str, folder: Path, stream: str, rate: int) -> Iterator[None]:
    """A writer at a steady rate."""
    command = [sys.executable, "-m", "tests.bench.sse_writer", bootstrap, stream, str(rate)]
    with Process(command, folder / f"writer-{next(_numbers)}.log") as writer:
        writer.wait_for("writing")
        yield


def fill(bootstrap: str, stream: str, count: int, *, readings: int = 10) -> None:
    """Write so many readings at once, `readings` to a record."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.bench.sse_writer",
            bootstrap,
            stream,
            str(100 * readings),
            str(count),
        ],
        check=True,
    )


class Readers:
    """The process of readers."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def ask(self, command: str) -> dict[str, float]:
        """Send a command, wait for its answer."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(command + "\n")
        self._child.stdin.flush()
        answer: dict[str, float] = json.loads(self._child.stdout.readline())
        return answer

    def measure(self, seconds: float, pid: int) -> dict[str, float]:
        """Their figures, with the processor time that process `pid` used: in all, and as a share of
        one processor.
        """
        used, began = cpu_s(pid), time.perf_counter()
        found = self.ask(f"measure {seconds}")
        took, used = time.perf_counter() - began, cpu_s(pid) - used
        return {
            **found,
            "cpu_us": used / max(1.0, found["deliveries_per_s"] * seconds) * 1e6,
            "cpu_share": used / took,
        }

    def assert_complete(self) -> int:
        """Nothing is missing and nothing repeated for any client; how many events came in all."""
        found = self.ask("check")
        assert found["events"] > 0, "nothing was delivered"
        wrong = {
            name: value
            for name, value in found.items()
            if name in ("gaps", "repeats", "uneven") and value
        }
        assert not wrong, f"events are missing or repeated: {found}"
        return int(found["events"])


@contextlib.contextmanager
def reading(
    port: int, path: str, clients: int, *, by: str = "tests.bench.sse_clients", key: str = ""
) -> Iterator[Readers]:
    """So many readers, connected; `by`: the program, which knows their protocol; `key`: what each
    shows, where that program is asked to.
    """
    command = [sys.executable, "-m", by, str(port), path, str(clients), *([key] if key else [])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "connected\n"
        try:
            yield Readers(child)
        finally:
            child.kill()  # it may be busy for long with what still comes
