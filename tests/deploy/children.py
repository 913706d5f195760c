"""Small real programs that the supervisor's tests run as parts."""

from __future__ import annotations

import asyncio
import random
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from edgewake.deploy.part import Floor, Part
from edgewake.deploy.supervisor import Supervisor
from edgewake.protocol.clock import SystemClock

READY = """print('{"event":"part.ready"}', flush=True)"""

OBEDIENT = f"{READY}\nsignal.pause()"
STUBBORN = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\nwhile True: signal.pause()"
CRASHING = f"{READY}\nsys.exit(7)"


def program(body: str, *arguments: object) -> tuple[str, ...]:
    """A command that runs a few lines of Python; `sys.argv[1:]` are the arguments."""
    text = "import os, signal, subprocess, sys, time\n" + textwrap.dedent(body)
    return (sys.executable, "-S", "-c", text, *map(str, arguments))


def part(name: str, body: str = OBEDIENT, *arguments: object, floor: Floor = Floor.SERVER, **more: object) -> Part:
    """A part with defaults."""
    return Part(name=name, command=program(body, *arguments), floor=floor, **({"stop_s": 5.0} | more))  # type: ignore[arg-type]


def supervisor(tmp_path: Path, *parts: Part) -> Supervisor:
    """A supervisor with its logs in a folder of the test."""
    return Supervisor(parts, tmp_path, clock=SystemClock(), rng=random.Random(1))


async def until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> None:
    """Wait for a condition without holding the event loop up."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what


def is_alive(pid: int) -> bool:
    """Is there such a process, and is it no zombie?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
