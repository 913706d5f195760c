"""Small real programs that the supervisor's tests run as parts."""

from __future__ import annotations

import asyncio
import random
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from edgewake.deploy.parts.part import Floor, Part
from edgewake.deploy.parts.supervisor import STOP_S, Supervisor
from edgewake.protocol.clock import Clock, SystemClock
from tests.services import PATIENCE_S

READY = """print('{"event":"part.ready"}', flush=True)"""

OBEDIENT = f"{READY}\nsignal.pause()"
STUBBORN = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{READY}\nwhile True: signal.pause()"
LIVELY = f"""
import socket, os
signs = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
{READY}
while True:
    signs.sendto(b"WATCHDOG=1", chr(0) + os.environ["NOTIFY_SOCKET"][1:])
    time.sleep(0.1)
"""
"""Gives a sign of life ten times a second."""
CRASHING = f"{READY}\nsys.exit(7)"


def program(body: str, *arguments: object) -> tuple[str, ...]:
    """A command that runs a few lines of Python; `sys.argv[1:]` are the arguments."""
    text = "import os, signal, subprocess, sys, time\n" + textwrap.dedent(body)
    return (sys.executable, "-S", "-c", text, *map(str, arguments))


def part(
    name: str, body: str = OBEDIENT, *arguments: object, floor: Floor = Floor.SERVER, **more: object
) -> Part:
    """A part with defaults."""
    return Part(
        name=name, command=program(body, *arguments), floor=floor, **({"stop_s": 5.0} | more)
    )  # type: ignore[arg-type]


class Impatient(SystemClock):
    """Leaves out most of the waits between starts, and notes how long they would have been."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(seconds / 1000)


def supervisor(
    tmp_path: Path, *parts: Part, clock: Clock | None = None, stop_s: float = STOP_S
) -> Supervisor:
    """A supervisor with its logs in a folder of the test."""
    return Supervisor(
        parts, tmp_path, clock=clock or SystemClock(), rng=random.Random(1), stop_s=stop_s
    )


async def until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait for a condition without holding the event loop up."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what
