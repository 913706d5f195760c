"""Runs a program without a shell, with bounded output, and kills what it leaves behind.

It has a session of its own, and what is left of that when it ends, when its time is over, or when
its caller is cancelled, is killed; a program that leaves its session on purpose is out of reach
(the service manager's limits still hold for it).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

log = logging.getLogger("edgewake.agent")

CHUNK_BYTES: Final = 16 * 1024
"""Bytes of the output that are read at once."""
REAP_S: Final = 5.0
"""Wait for a killed program to be gone; it is one that hangs in the kernel that takes longer."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program to run and its bounds."""

    argv: Sequence[str]
    output_bytes_max: int
    """Bytes of the output (both kinds) whose beginning is kept; the rest is read and forgotten."""
    stdin: bytes | None = None
    """What it may read; None: nothing."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of `subprocess.Popen`: environment, folder, user."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program."""

    code: int | None
    """Exit code, or a signal's number below zero; None where its time was over."""
    output: bytes


async def run(program: Program, *, timeout_s: float | None = None) -> Ended:
    """Run it to its end, or kill it. Raises OSError, ValueError where it cannot be started."""
    with _Output(program.output_bytes_max) as output:
        process = await start(
            program.argv,
            stdin=DEVNULL if program.stdin is None else PIPE,
            stdout=output.writing,
            stderr=STDOUT,
            **program.options,
        )
        output.is_passed_on()
        code = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    if program.stdin is not None:
                        await _write(process, program.stdin)
                    code = await process.wait()
        finally:
            await end(process)
        return Ended(code, output.kept())


async def start(argv: Sequence[str], **options: Any) -> Process:
    """Start it in a session of its own. Raises OSError, ValueError where it cannot be started.

    Cancelled meanwhile, asyncio would end the program and leave what it started.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(*argv, start_new_session=True, **options)
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        with contextlib.suppress(OSError, ValueError):
            await end(await starting)
        raise


async def _write(process: Process, data: bytes) -> None:
    """A program need not read it."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def end(process: Process) -> None:
    """Kill what is left of its session, and take note of its end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        async with asyncio.timeout(REAP_S):
            await process.wait()
    except TimeoutError:
        log.error(
            "a program cannot be killed", extra={"event": "agent.unkillable", "pid": process.pid}
        )


class _Output:
    """A program's output: all of it is read, its beginning kept.

    A pipe of ours, because asyncio takes a program for running as long as anybody holds its pipe
    open, which one that left the session may do for ever.
    """

    def __init__(self, bytes_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._bytes_max = bytes_max
        self._kept = bytearray()

    def __enter__(self) -> _Output:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._reading)
        os.close(self._reading)
        self.is_passed_on()

    def is_passed_on(self) -> None:
        """The program has its end; ours would keep the output open."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def _read(self) -> bool:
        """False where there is nothing now, or it has ended."""
        try:
            chunk = os.read(self._reading, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._loop.remove_reader(self._reading)
        self._kept += chunk[: self._bytes_max - len(self._kept)]
        return bool(chunk)

    def kept(self) -> bytes:
        """What is kept of it, with what is still to be read."""
        while len(self._kept) < self._bytes_max and self._read():
            pass
        return bytes(self._kept)
