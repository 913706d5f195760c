"""A container's health check: asks the part in it how it is, and ends one that hangs.

Docker starts again what has ended, and only marks what is unhealthy. So a part that was well, and
then fails FAILURES_MAX looks in a row, is killed: the container's first process ends with it, and
the container is started again, as `edgewake up` and systemd do it anyway.

    python -m edgewake.deploy.parts.health     exit 0: well; 1: not. HEALTH_PORT: of the part's
                                               metrics,
                                         or the one it serves on.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

FAILURES_MAX: Final = 4
"""Looks in a row; compose.yaml has 15 s between two, and a part itself says that it hangs after 30
s (the analysis: 180 s)."""
TIMEOUT_S: Final = 4.0
INIT: Final = 1
"""The container's first process, whose child the part is. It cannot be killed from within."""


def failures_after(failures: int | None, *, is_well: bool) -> int | None:
    """Looks in a row that failed; None: it never was well, for a start may take long."""
    if is_well:
        return 0
    return None if failures is None else failures + 1


def look(port: str, remembered: Path, *, init: int = INIT) -> bool:
    """Is the part well? One that hangs is ended.

    `remembered`: a file of the container, gone when it is started again.
    """
    is_well = _answers(port)
    failures = failures_after(_read(remembered), is_well=is_well)
    if failures is not None:
        remembered.write_text(str(failures))
        if failures >= FAILURES_MAX:
            for pid in children(init):
                os.kill(pid, signal.SIGKILL)
    return is_well


def children(parent: int) -> Iterator[int]:
    """Processes that it started or that were left to it, but this one."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[1]) == parent and int(folder.name) != os.getpid():
            yield int(folder.name)


def _answers(port: str) -> bool:
    here = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # whatever http_proxy says
    try:
        with here.open(f"http://127.0.0.1:{port}/healthz", timeout=TIMEOUT_S):  # 503 raises
            return True
    except (OSError, ValueError):
        return False


def _read(remembered: Path) -> int | None:
    try:
        return int(remembered.read_text())
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    sys.exit(
        0 if look(os.environ["HEALTH_PORT"], Path(tempfile.gettempdir()) / "edgewake-health") else 1
    )
