"""One started process of a part: its output goes to the log, its readiness is an event, its end leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Callable
from typing import Final

import orjson

from edgewake.deploy.guardian import Guardian, die_with_parent
from edgewake.deploy.part import Part
from edgewake.deploy.part_log import LINE_BYTES_MAX, PartLog

READY_EVENT: Final = "part.ready"
_PROBE_S: Final = 0.05
_GROUP_POLL_S: Final = 0.01
_DRAIN_S: Final = 1.0
"""Seconds for the last output after the process ended; a grandchild that holds the pipe open does not hold us up."""
_GONE_S: Final = 1.0
"""Seconds for a killed group to be gone: the kernel needs a while to take a large process down, and init may be slow to bury it."""


class Child:
    """A running process; made by `start`."""

    def __init__(self, part: Part, process: Process, output: asyncio.StreamReader, log: PartLog, guardian: Guardian) -> None:
        self.pid = process.pid
        self.ready = asyncio.Event()
        self._part = part
        self._process = process
        self._log = log
        self._guardian = guardian
        self._pump = asyncio.create_task(each_line(output, self._take), name=f"{part.name} output")
        self._probe = None if part.port is None else asyncio.create_task(self._wait_for_port(part.port), name=f"{part.name} port")

    @classmethod
    async def start(cls, part: Part, log: PartLog, guardian: Guardian) -> Child:
        """Start the part's command; raises OSError where it cannot be started."""
        # A pipe of our own: asyncio's would make us wait for every descendant that holds it, where we wait for the part alone.
        read_end, write_end = os.pipe()
        try:
            output = await _reader(read_end)
            process = await asyncio.create_subprocess_exec(
                *part.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **part.env},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        finally:
            os.close(write_end)
        guardian.watch(process.pid)
        return cls(part, process, output, log, guardian)

    async def ended(self) -> int:
        """Wait for the end, clear up what it left, and give its exit code (negative: the signal)."""
        code = await self._process.wait()
        await self._clear_up()
        return code

    async def stop(self, grace_s: float) -> int:
        """SIGTERM, and SIGKILL for the whole group after `grace_s`."""
        if self._process.returncode is None:
            self._process.terminate()
            try:
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
            except TimeoutError:
                self.kill()
        return await self.ended()

    def kill(self) -> None:
        """SIGKILL for the process and its descendants, at once."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _has_group(self) -> bool:
        """Is anything left of the process and its descendants?"""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    async def _clear_up(self) -> None:
        # The group outlives its leader where a descendant (a JVM, say) does; the pid stays taken as long, so it is still ours.
        self.kill()
        try:
            async with asyncio.timeout(_GONE_S):
                while self._has_group():  # noqa: ASYNC110 the kernel tells nobody when a grandchild is gone
                    await asyncio.sleep(_GROUP_POLL_S)
        except TimeoutError:
            pass
        self._guardian.forget(self.pid)
        if self._probe is not None:
            self._probe.cancel()
        await asyncio.wait([self._pump], timeout=_DRAIN_S)
        self._pump.cancel()

    def _take(self, line: bytes) -> None:
        self._log.write(line)
        if READY_EVENT.encode() in line and self._part.port is None and _event_of(line) == READY_EVENT:
            self.ready.set()

    async def _wait_for_port(self, port: int) -> None:
        while not await is_open(port):  # noqa: ASYNC110 another process tells us nothing, so we ask
            await asyncio.sleep(_PROBE_S)
        self.ready.set()


async def _reader(descriptor: int) -> asyncio.StreamReader:
    """The read end of a pipe as a stream; it is closed at the end of its input or with the loop."""
    reader = asyncio.StreamReader(LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0))
    return reader


async def each_line(stream: asyncio.StreamReader, take: Callable[[bytes], None]) -> None:
    """Pass on line by line; one that is longer than LINE_BYTES_MAX is passed on in pieces, so that memory stays bounded."""
    rest = b""
    while data := await stream.read(LINE_BYTES_MAX):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            take(line)
        if len(rest) >= LINE_BYTES_MAX:
            take(rest)
            rest = b""
    take(rest)


async def is_open(port: int, host: str = "127.0.0.1") -> bool:
    """Does somebody take connections there?"""
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _event_of(line: bytes) -> object:
    try:
        body = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return body.get("event") if isinstance(body, dict) else None
