"""A disk that answers with errors: `python -m tests.edge.log.io_errors DIR --times N
[--accept-before-commit]` prints findings as JSON.

The kernel's answer to a system call of the writing path is replaced by EIO (strace), which SQLite
and our thread get like any error of a disk: once, after which the life goes on to its end; or from
then on, until the life is killed. A log that cannot be opened ends its life, as the agent's does,
and the next one tries again. The verdict is that of `crash_runner`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Final

from edgewake.edge.log.writing import disk
from tests.edge.log.crash_runner import Child, Cloud, live_once
from tests.edge.log.syscall_kills import faulty

CALLS: Final = {"fdatasync": 24, "pwrite64": 90}
"""System call → the first that fails; those before it open the log."""
ROUNDS: Final = 40
SPREAD: Final = 10
"""Calls behind the first at which a life's disk may begin to fail."""
HASTY_ROUNDS: Final = 1_500
"""Of the control, which waits for no commit, so that many share one."""
LASTING_S: Final = 0.3
"""How long a disk that answers nothing else is lived with."""


class Patient(Child):
    """Ends where its log cannot be opened."""

    def __init__(self, *given: Any, **named: Any) -> None:
        try:
            super().__init__(*given, **named)
        except sqlite3.OperationalError:
            os._exit(0)

    def run(self) -> None:
        """As its base, which opens a consumer first."""
        try:
            super().run()
        except sqlite3.OperationalError:
            os._exit(0)


class Disk:
    """Lives on it, one after the other, each with its fault."""

    def __init__(self, directory: Path, *, control: bool) -> None:
        self._log, self._notes, self._control = directory / "log", directory / "calls", control
        self._life = 0
        self.cloud = Cloud()
        self.injected = Counter[str]()

    def live(self, call: str, first: int, *, lasts: bool) -> None:
        """A life whose disk fails at this call, and from then on where it `lasts`."""
        self._notes.unlink(missing_ok=True)
        rounds = HASTY_ROUNDS if self._control else ROUNDS
        with faulty(call, f"error=EIO:when={first}{'+' if lasts else ''}", self._notes) as attach:
            live_once(
                self.cloud,
                self._child(rounds, control=self._control),
                None,
                before=partial(self._begin, attach, lasts),
            )
        self.injected[f"{call} {'lasting' if lasts else 'once'}"] += self._has_failed()

    def end(self) -> None:
        """A life on a good disk sends what is left."""
        live_once(self.cloud, self._child(1, control=False), None)

    def _child(self, rounds: int, *, control: bool) -> Callable[[int, int], Child]:
        self._life += 1
        life = self._life
        return lambda out, acks: Patient(
            self._log, out, acks, life=life, failpoint=None, nth=0, control=control, rounds=rounds
        )

    def _begin(self, attach: Callable[[int], None], lasts: bool, pid: int) -> None:
        attach(pid)
        if lasts:
            Thread(target=self._kill, args=(pid,), daemon=True).start()

    def _kill(self, pid: int) -> None:
        """Some time after the disk began to fail."""
        with contextlib.suppress(ProcessLookupError):
            while not self._has_failed():
                os.kill(pid, 0)
                time.sleep(0.02)
            time.sleep(LASTING_S)
            os.kill(pid, signal.SIGKILL)

    def _has_failed(self) -> bool:
        return self._notes.exists() and "(INJECTED)" in self._notes.read_text()


def main() -> None:
    """Fail, then judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--call", choices=CALLS, action="append", help="these system calls only")
    parser.add_argument("--accept-before-commit", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    disk.CHECKPOINT_BYTES = 64 * 1024  # type: ignore[misc]
    options.directory.mkdir(parents=True, exist_ok=True)
    lives = Disk(options.directory, control=options.accept_before_commit)
    for n in range(options.times):
        for call in options.call or CALLS:
            for lasts in (False, True):
                lives.live(call, CALLS[call] + n % SPREAD, lasts=lasts)
    lives.end()
    print(json.dumps({"injected": lives.injected, "violations": lives.cloud.verdict()}))


if __name__ == "__main__":
    main()
