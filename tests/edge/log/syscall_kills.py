"""Kills a log at system calls: `python -m tests.edge.log.syscall_kills DIR --points N
[--accept-before-commit]` prints findings as JSON.

strace is put on a child before it opens its log, and kills it with -9 at the entry of the n-th call
of one kind: each write, sync, truncation, creation and removal that the child's threads make, while
it opens what the last one left and while it writes. The parent is the cloud, as in `crash_runner`,
whose children these are: the same verdict, after each `LIVES` deaths of one directory.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import select
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Final

from edgewake.edge.log.writing import disk
from tests.edge.log.crash_runner import Child, Cloud, live_once

CALLS: Final = (
    "pwrite64",
    "fdatasync",
    "fsync",
    "ftruncate",
    "unlink",
    "rename",
    "write",
    "openat",
    "fcntl",
)
"""The writing path of SQLite (its files, its locks) and of the sidecar. At `write` the child also
tells its parent what it did."""
LIVES: Final = 25
"""Deaths between two verdicts: so many find a log that others have left."""
ROUNDS: Final = 40
ATTACH_S: Final = 20.0


@contextlib.contextmanager
def faulty(call: str, fault: str, notes: Path) -> Iterator[Callable[[int], None]]:
    """Gives a function that puts strace on a process and returns when it watches; `fault` as
    strace's inject has it, e.g. error=EIO:when=3. It notes each call, and where it injected. Raises
    RuntimeError where it cannot.
    """
    watchers: list[subprocess.Popen[bytes]] = []

    def attach(pid: int) -> None:
        command = [
            "strace",
            "-f",
            "-qqq",
            "-e",
            f"trace={call}",
            "-e",
            f"inject={call}:{fault}",
            "-o",
            str(notes),
            "-p",
            str(pid),
        ]
        watchers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE))
        tracer = Path(f"/proc/{pid}/status")
        while "TracerPid:\t0\n" in tracer.read_text("ascii", "replace"):
            if watchers[-1].poll() is not None:
                assert watchers[-1].stderr is not None
                raise RuntimeError(f"strace: {watchers[-1].stderr.read().decode().strip()}")
            select.select([], [], [], 0.002)

    try:
        yield attach
    finally:
        for watcher in watchers:
            watcher.wait(ATTACH_S)
            assert watcher.stderr is not None
            watcher.stderr.close()


class Deaths:
    """Lives of one directory after the other, each killed at the next point."""

    def __init__(self, directory: Path, *, control: bool) -> None:
        self._directory = directory
        self._control = control
        self._cloud = Cloud()
        self._life = 0
        self.by_call = Counter[str]()
        self.violations = Counter[str]()

    def die_at(self, call: str, nth: int) -> bool:
        """One life; False where it ended before it made so many of these calls."""
        self._life += 1
        with faulty(call, f"signal=KILL:when={nth}", Path("/dev/null")) as attach:
            killed = live_once(self._cloud, self._child(ROUNDS), None, before=attach)
        self.by_call[call] += killed
        if self._life % LIVES == 0:
            self.judge()
        return killed

    def judge(self) -> None:
        """A life that nobody kills sends what is left; then what the cloud has is compared with
        what was accepted.
        """
        self._life += 1
        live_once(self._cloud, self._child(1), None)
        self.violations.update(self._cloud.verdict())
        self._directory = self._directory.with_name(f"{self._directory.name}+")
        self._cloud = Cloud()

    def _child(self, rounds: int) -> Callable[[int, int], Child]:
        life, control, directory = self._life, self._control, self._directory
        return lambda out, acks: Child(
            directory, out, acks, life=life, failpoint=None, nth=0, control=control, rounds=rounds
        )


def points(count: int) -> Generator[tuple[str, int], bool, None]:
    """(call, n) for n = 1, 2, … of each call in turns; `send` False ends a call that is not made so
    often. At most `count`.
    """
    left, n = list(CALLS), 0
    while left and count > 0:
        n += 1
        for call in tuple(left):
            if count == 0:
                return
            if (yield call, n):
                count -= 1
            else:
                left.remove(call)


def spread(count: int) -> Iterator[tuple[str, int]]:
    """A sample: few points of each call, far apart."""
    chosen = [("openat", 5), ("unlink", 1), ("rename", 1)]
    chosen += [(call, nth) for nth in (3, 17, 41) for call in ("pwrite64", "fdatasync", "write")]
    yield from chosen[:count]


def main() -> None:
    """Kill, then judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--accept-before-commit", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    disk.CHECKPOINT_BYTES = 64 * 1024  # type: ignore[misc]
    options.directory.mkdir(parents=True, exist_ok=True)
    deaths = Deaths(options.directory / "log", control=options.accept_before_commit)
    if options.sample:
        for call, nth in spread(options.points):
            deaths.die_at(call, nth)
    else:
        chooser = points(options.points)
        with contextlib.suppress(StopIteration):
            call, nth = next(chooser)
            while True:
                call, nth = chooser.send(deaths.die_at(call, nth))
    deaths.judge()
    print(
        json.dumps(
            {
                "killed": sum(deaths.by_call.values()),
                "by_call": deaths.by_call,
                "violations": deaths.violations,
            }
        )
    )


if __name__ == "__main__":
    main()
