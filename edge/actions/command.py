"""A program of this machine, run for an alert.

Its words are the configuration's, always the same; what was measured comes on standard input and, a little of it, in the environment, so no
reading can become an argument or a shell's text. It inherits nothing else of the agent's environment. Where the agent is root it runs as
another user, without groups. It has a session of its own, and what is left of that when it ends, or when its time is over, is killed; a
program that leaves its session on purpose is out of reach (the service manager's limits still hold for it). Of its output the beginning is
kept for the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from edgewake.edge.actions.action import Act, ActionFailed
from edgewake.edge.actions.alert import Alert
from edgewake.edge.actions.config import CommandActionConfig

OUTPUT_BYTES_MAX: Final = 2048
"""Bytes of the output that are kept to say why it failed; the rest is read and forgotten."""
CHUNK_BYTES: Final = 16 * 1024
"""Bytes of the output that are read at once."""
REAP_S: Final = 5.0
"""Wait for a killed program to be gone; it is one that hangs in the kernel that takes longer."""
PATH: Final = "/usr/local/bin:/usr/bin:/bin"
"""Where programs that it starts are looked for."""


class CommandAction:
    """See the module."""

    def __init__(self, config: CommandActionConfig) -> None:
        self._config = config

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[Act]:
        yield self._run

    async def _run(self, alert: Alert) -> None:
        with _Output() as output:
            process = await self._start(alert, output.writing)
            output.is_passed_on()
            try:
                await _write(process, alert.body())
                code = await process.wait()
            finally:
                await _end(process)
            if code != 0:
                raise ActionFailed(f"exit code {code}: {output.text()}")

    async def _start(self, alert: Alert, output: int) -> Process:
        """Cancelled meanwhile, asyncio would end the program and leave what it started."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self._config.command,
                stdin=PIPE,
                stdout=output,
                stderr=STDOUT,
                cwd="/",
                env=environment(alert),
                start_new_session=True,
                umask=0o077,
                **_identity(self._config.user),
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await _end(await starting)
            raise


async def _end(process: Process) -> None:
    """Kill what is left of its session, and take note of its end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REAP_S):
            await process.wait()


class _Output:
    """A program's output: all of it is read, its beginning kept. A pipe of ours, because asyncio takes a program for running as long as
    anybody holds its pipe open, which one that left the session may do for ever.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
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
        self._kept += chunk[: OUTPUT_BYTES_MAX - len(self._kept)]
        return bool(chunk)

    def text(self) -> str:
        """Its end, of what is kept, with what is still to be read."""
        while len(self._kept) < OUTPUT_BYTES_MAX and self._read():
            pass
        return self._kept.decode(errors="replace").strip()[-500:]


def environment(alert: Alert) -> Mapping[str, str]:
    """All that a program finds in its environment."""
    t, fields = alert.reading
    told = {"ID": alert.id, "DEVICE": alert.device, "STREAM": alert.stream, "T": str(t)}
    told |= {name.upper(): str(fields[name]) for name in ("rule", "active", "since_ms") if fields.get(name) is not None}
    return {"PATH": PATH, "LANG": "C.UTF-8"} | {f"EDGEWAKE_{name}": value.replace("\0", "") for name, value in told.items()}


def _identity(user: str) -> dict[str, Any]:
    """Who runs it. Raises ActionFailed where there is no such user."""
    if os.geteuid() != 0:
        return {}
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise ActionFailed(f"user {user!r} is not known on this machine") from None
    return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}


async def _write(process: Process, body: bytes) -> None:
    """A program need not read it."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(body)
        await process.stdin.drain()
    process.stdin.close()
