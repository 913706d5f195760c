"""Programs whose output is read line by line."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from edgewake.edge.sources.lines.exec import ExecConfig
from tests.edge.sources.cage import caged
from tests.services import wait_until


def program(tmp_path: Path, text: str, **more: object) -> ExecConfig:
    file = tmp_path / "program.py"
    file.write_text(text)
    return ExecConfig.checked(
        {"type": "exec", "stream": "s", "command": [sys.executable, str(file)], **more}
    )


async def test_each_line_of_a_program_that_runs_on_is_a_reading(tmp_path: Path) -> None:
    text = (
        "import time\nfor n in range(3):\n    print('{\"n\": %d}' % n, flush=True)\n"
        "print('no json', flush=True)\ntime.sleep(600)\n"
    )
    async with caged(tmp_path / "log", program(tmp_path, text)) as one:
        await one.until(lambda: one.column("n") == [0, 1, 2], "three lines")
        await one.until(lambda: one.intake.refused == {"json": 1}, "the refusal")
        assert one.supervisor.failures == 0


async def test_a_program_that_hangs_is_ended_and_started_again(tmp_path: Path) -> None:
    text = "import os, time\nprint('{\"n\": %d}' % os.getpid(), flush=True)\ntime.sleep(600)\n"
    async with caged(tmp_path / "log", program(tmp_path, text, silence_s=0.3)) as one:
        await one.failed("nothing heard for 0.3 s")
        await one.until(lambda: len(one.column("n")) >= 2, "its second run")
        first = one.column("n")[0]
        assert isinstance(first, int)
        await asyncio.to_thread(wait_until, lambda: not _runs(first), "the end of the first")


def test_a_program_at_intervals_has_its_time_and_no_silence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="timeout_s ends it"):
        program(tmp_path, "", interval_s=1.0, silence_s=1.0)


async def test_a_program_is_started_at_intervals_and_one_that_fails_is_said(
    tmp_path: Path,
) -> None:
    count = tmp_path / "count"
    text = (
        f"import sys\nfrom pathlib import Path\nfile = Path({str(count)!r})\n"
        "n = int(file.read_text()) if file.exists() else 0\nfile.write_text(str(n + 1))\n"
        "if n == 1:\n    sys.exit('the sensor is away')\nprint(n, n * 1.5, sep=',')\n"
    )
    config = program(tmp_path, text, interval_s=0.1, format="csv", columns=["n", "x"])
    async with caged(tmp_path / "log", config) as one:
        await one.failed("exit code 1: the sensor is away")
        await one.until(lambda: one.column("n")[:3] == [0, 2, 3], "the runs after it")


async def test_nothing_is_left_of_a_program_that_is_not_over_in_time(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}} ')\ntime.sleep(600)\n"
    )
    config = program(tmp_path, text, interval_s=0.1, timeout_s=1.0)
    async with caged(tmp_path / "log", config) as one:
        await one.failed("not over after 1 s")
        first = [int(pid) for pid in pids.read_text().split()]
        assert len(first) == 2
    left = [int(pid) for pid in pids.read_text().split()]
    for pid in {*first, *left}:
        await asyncio.to_thread(wait_until, lambda pid=pid: not _runs(pid), f"the end of {pid}")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


async def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    config = ExecConfig.checked({"type": "exec", "stream": "s", "command": ["/no/such/program"]})
    async with caged(tmp_path, config) as one:
        await one.failed("/no/such/program")
