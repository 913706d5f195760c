"""Logs that run out of memory: `python -m tests.edge.log.out_of_memory DIR --kills N
[--accept-before-commit]` prints findings as JSON.

Each child lives in a memory group of the kernel (cgroup 2: memory.max; cgroup 1:
memory.limit_in_bytes) and becomes hungry at its start or after some appends, so that the kernel
kills it a little later, wherever its threads are. Where no group can be made, its address space is
bounded (RLIMIT_AS), and it is killed when an allocation fails: the report says `by`. The parent is
the cloud, as in `crash_runner`, whose children these are.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import signal
import threading
from pathlib import Path
from typing import Final

from tests.edge.log.crash_runner import Child, Cloud, live_once

HUNGRY_AFTER: Final = (0, 1, 5, 20, 60)
"""Appends, in turns; after none, some die while they open what the last one left."""
MEMORY_BYTES: Final = 48 << 20
"""What a child may take; without hunger it takes a third."""
BITE_BYTES: Final = 16 << 20
"""Few, so that little else happens between them."""
ROUNDS: Final = 1_500
"""More than there is time for, so that also who waits for no commit is appending when it dies; and
no more than the queue takes."""
LIVES_A_KILL: Final = 3
GROUPS: Final = Path("/sys/fs/cgroup")
SWAP_TOO: Final = "memory.memsw.limit_in_bytes"


class MemoryGroup:
    """One of the kernel's, or the reason why there is none."""

    def __init__(self) -> None:
        self.kind, self._path = "RLIMIT_AS", None
        self.why = ""
        """Why no group could be made."""
        name = f"edgewake-{os.getpid()}"
        for kind, path, keys in (
            ("memory.max", GROUPS / name, {"memory.max": MEMORY_BYTES, "memory.swap.max": 0}),
            (
                "memory.limit_in_bytes",
                GROUPS / "memory" / name,
                {"memory.limit_in_bytes": MEMORY_BYTES, SWAP_TOO: MEMORY_BYTES},
            ),
        ):
            try:
                _make(path, kind, keys)
            except OSError as error:
                self.why += f"{kind}: {error}; "
            else:
                self.kind, self._path = kind, path
                return

    def add(self, pid: int) -> None:
        """Bound a child that has not begun."""
        if self._path is not None:
            (self._path / "cgroup.procs").write_text(str(pid))

    def bound(self) -> None:
        """In the child: where there is no group, bound the address space."""
        if self._path is None:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, used + MEMORY_BYTES))

    @property
    def bite_bytes(self) -> int:
        """What the hungry take at once.

        Of a bounded address space all: an allocation of another thread must not fail before theirs.
        """
        return BITE_BYTES if self._path is not None else 2 * MEMORY_BYTES

    def kills(self) -> int | None:
        """How often the kernel killed in it; None where there is no group."""
        if self._path is None:
            return None
        file = self._path / ("memory.events" if self.kind == "memory.max" else "memory.oom_control")
        return int(dict(line.split() for line in file.read_text().splitlines())["oom_kill"])

    def remove(self) -> None:
        """When nobody lives in it."""
        if self._path is not None:
            self._path.rmdir()


def _make(path: Path, kind: str, keys: dict[str, int]) -> None:
    with contextlib.suppress(OSError):
        (path.parent / "cgroup.subtree_control").write_text("+memory")
    path.mkdir()
    try:
        for name, value in keys.items():
            # A kernel that does not count swap has no key for it.
            if name == kind or (path / name).exists():
                with (path / name).open("r+") as file:
                    file.write(str(value))
    except OSError:
        path.rmdir()
        raise


class HungryChild(Child):
    """One life that becomes hungry."""

    def __init__(
        self,
        directory: Path,
        out: int,
        acks: int,
        group: MemoryGroup,
        *,
        life: int,
        after: int,
        control: bool,
    ) -> None:
        self._appends_left, self._hungry = after, threading.Event()
        group.bound()
        threading.Thread(target=eat, args=(self._hungry, group.bite_bytes), daemon=True).start()
        self._pass("started")
        super().__init__(
            directory, out, acks, life=life, failpoint=None, nth=0, control=control, rounds=ROUNDS
        )

    def _pass(self, place: str) -> None:
        self._appends_left -= place == "appended"
        if self._appends_left <= 0:
            self._hungry.set()


def eat(hungry: threading.Event, bite_bytes: int) -> None:
    """Take memory until there is none."""
    hungry.wait()
    eaten = []
    try:
        while True:
            eaten.append(b"x" * bite_bytes)
    except MemoryError:  # of a bounded address space; the kernel of a group does not ask
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Starve, then judge."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--accept-before-commit", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    group, cloud = MemoryGroup(), Cloud()
    killed = life = 0
    try:
        while killed < options.kills and life < LIVES_A_KILL * options.kills:
            life += 1

            def make(
                out: int,
                acks: int,
                *,
                life: int = life,
                after: int = HUNGRY_AFTER[life % len(HUNGRY_AFTER)],
            ) -> Child:
                return HungryChild(
                    options.directory,
                    out,
                    acks,
                    group,
                    life=life,
                    after=after,
                    control=options.accept_before_commit,
                )

            killed += live_once(cloud, make, None, before=group.add)

        def last(out: int, acks: int) -> Child:
            return Child(
                options.directory,
                out,
                acks,
                life=life + 1,
                failpoint=None,
                nth=0,
                control=False,
                rounds=1,
            )

        live_once(cloud, last, None)
        report = {
            "by": group.kind,
            "why": group.why,
            "lives": life,
            "killed": killed,
            "oom_kills": group.kills(),
        }
        print(json.dumps(report | {"frames": len(cloud.frames), "violations": cloud.verdict()}))
    finally:
        group.remove()


if __name__ == "__main__":
    main()
