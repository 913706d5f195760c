"""No child outlives its part, and none the supervisor."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from tests.deploy.children import (
    READY,
    part,
    program,
    supervisor,
    until,
)
from tests.services import is_alive


async def test_a_grandchild_does_not_outlive_its_part(tmp_path: Path) -> None:
    body = (
        "child = subprocess.Popen(['sleep', '1000'])\nopen(sys.argv[1], "
        f"'w').write(str(child.pid))\n{READY}\nsignal.pause()"
    )
    stop = asyncio.Event()
    await supervisor(tmp_path, part("parent", body, tmp_path / "pid")).run(
        stop, when_ready=stop.set
    )
    grandchild = int((tmp_path / "pid").read_text())
    await until(lambda: not is_alive(grandchild), "the grandchild is gone")


def test_kill_9_of_the_supervisor_leaves_no_child_and_no_grandchild(tmp_path: Path) -> None:
    """The part and what it started itself die with a supervisor that had no chance to stop them."""
    child_body = (
        "child = subprocess.Popen(['sleep', '1000'])\nprint(os.getpid(), child.pid, "
        "flush=True)\nsignal.pause()"
    )
    body = f"""
        import asyncio
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parents[2])!r})
        from tests.deploy.children import part, supervisor
        parent = supervisor(Path({str(tmp_path)!r}), part("parent", {child_body!r}))
        asyncio.run(parent.run(asyncio.Event()))
    """
    command = [sys.executable, *program(body)[2:]]
    with subprocess.Popen(command) as parent:
        log = tmp_path / "parent.log"
        deadline = time.monotonic() + 60
        while not (log.exists() and log.read_text().endswith("\n")):
            assert time.monotonic() < deadline, "the part started"
            time.sleep(0.02)
        pids = [int(word) for word in log.read_text().split()]
        assert all(map(is_alive, pids))
        parent.kill()
    while any(map(is_alive, pids)):
        assert time.monotonic() < deadline, "all are gone"
        time.sleep(0.02)
