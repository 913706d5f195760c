"""One process of a part: its output, readiness, heartbeat, and clean end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import Callable
from typing import Final

import orjson

from edgewake.deploy.parts.guardian import Guardian, die_with_parent
from edgewake.deploy.parts.part import Part
from edgewake.deploy.parts.part_log import LINE_BYTES_MAX, PartLog
from edgewake.protocol.clock import Clock
from edgewake.protocol.ops.part_status import SUPERVISED

READY_EVENT: Final = "part.ready"
_PORT_POLL_S: Final = 0.05
PROBES_PER_BOUND: Final = 5
"""Questions to a port within the seconds of silence that kill its part."""
_SIGN_BYTES_MAX: Final = 4096
_numbers: Final = itertools.count(1)
_GROUP_POLL_S: Final = 0.01
_DRAIN_S: Final = 1.0
"""Seconds for the last output after the process ended; a grandchild that holds the pipe open does
not hold us up."""
_GONE_S: Final = 1.0
"""Seconds for a killed group to be gone: the kernel needs a while to take a large process down, and
init may be slow to bury it."""


class Child:
    """A running process; made by `start`."""

    def __init__(
        self,
        part: Part,
        process: Process,
        output: asyncio.StreamReader,
        signs: socket.socket,
        log: PartLog,
        guardian: Guardian,
        clock: Clock,
    ) -> None:
        self.pid = process.pid
        self.ready = asyncio.Event()
        self.silent_s_max = part.silent_s
        """The part may ask for more when it knows of a long pause."""
        self.words = 0
        """Lines of output and signs of life so far."""
        self._part = part
        self._process = process
        self._log = log
        self._guardian = guardian
        self._clock = clock
        self._signs = signs
        self._signed_s: float | None = None
        self._tasks = [
            asyncio.create_task(each_line(output, self._on_line), name=f"{part.name} output")
        ]
        if part.port is not None:
            self._tasks.append(
                asyncio.create_task(self._watch_port(part.port), name=f"{part.name} port")
            )
        asyncio.get_running_loop().add_reader(signs, self._on_sign)

    @classmethod
    async def start(cls, part: Part, log: PartLog, guardian: Guardian, clock: Clock) -> Child:
        """Start the part's command; raises OSError where it cannot be started."""
        # A pipe of our own: asyncio's would make us wait for every descendant that holds it, where
        # we wait for the part alone.
        read_end, write_end = os.pipe()
        signs, address = _sign_socket()
        with contextlib.ExitStack() as undo:
            undo.callback(signs.close)  # also where we are cancelled meanwhile
            undo.callback(os.close, write_end)
            output = await _reader(read_end)
            process = await asyncio.create_subprocess_exec(
                *part.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **part.env, "NOTIFY_SOCKET": address, SUPERVISED: "1"},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
            undo.pop_all()
        os.close(write_end)
        guardian.watch(process.pid)
        return cls(part, process, output, signs, log, guardian, clock)

    def silent_s(self) -> float:
        """Seconds since its last sign of life; 0 for one that has given none yet."""
        return 0.0 if self._signed_s is None else self._clock.monotonic_s() - self._signed_s

    def excuse(self) -> None:
        """Count its silence from now: it was we who did not listen."""
        if self._signed_s is not None:
            self._signed_s = self._clock.monotonic_s()

    async def ended(self) -> int:
        """Wait for the end, clean up after it, and return its exit code (negative: the signal)."""
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

    def send_signal(self, number: signal.Signals) -> None:
        """To the process alone; one that has ended gets none."""
        if self._process.returncode is None:
            self._process.send_signal(number)

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
        # The group outlives its leader where a descendant (a JVM, say) does; the pid stays taken as
        # long, so it is still ours.
        self.kill()
        try:
            async with asyncio.timeout(_GONE_S):
                while self._has_group():  # noqa: ASYNC110 the kernel tells nobody when a grandchild is gone
                    await asyncio.sleep(_GROUP_POLL_S)
        except TimeoutError:
            pass
        self._guardian.forget(self.pid)
        if self._signs.fileno() >= 0:  # not closed by a call before
            asyncio.get_running_loop().remove_reader(self._signs)
            self._signs.close()
        output, *others = self._tasks
        for task in others:
            task.cancel()
        await asyncio.wait([output], timeout=_DRAIN_S)
        output.cancel()

    def _on_line(self, line: bytes) -> None:
        self.words += 1
        self._log.write(line)
        if (
            READY_EVENT.encode() in line
            and self._part.port is None
            and _event_of(line) == READY_EVENT
        ):
            self.ready.set()

    def _on_sign(self) -> None:
        try:
            message = self._signs.recv(_SIGN_BYTES_MAX)
        except BlockingIOError:
            return
        self._signed_s = self._clock.monotonic_s()
        self.words += 1
        for line in message.splitlines():
            name, _, value = line.partition(b"=")
            if name == b"WATCHDOG_USEC" and value.isdigit():
                self.silent_s_max = int(value) / 1e6

    async def _watch_port(self, port: int) -> None:
        while not await is_open(port):  # noqa: ASYNC110 another process tells us nothing, so we ask
            await asyncio.sleep(_PORT_POLL_S)
        self.ready.set()
        self._signed_s = self._clock.monotonic_s() if self._part.probe is not None else None
        pause_s = self._part.silent_s / PROBES_PER_BOUND
        while self._part.probe is not None:
            if await answers(port, self._part.probe, within_s=pause_s):
                self._signed_s = self._clock.monotonic_s()
            await asyncio.sleep(pause_s)


def _sign_socket() -> tuple[socket.socket, str]:
    """The socket for a part's heartbeats, and its name for NOTIFY_SOCKET.

    It is in the abstract name space, so no file is left.
    """
    signs = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    name = f"edgewake-{os.getpid()}-{next(_numbers)}"
    signs.bind("\0" + name)
    return signs, "@" + name


async def _reader(descriptor: int) -> asyncio.StreamReader:
    """The read end of a pipe as a stream; it is closed at the end of its input or with the loop."""
    reader = asyncio.StreamReader(LINE_BYTES_MAX)
    with contextlib.ExitStack() as undo:
        pipe = undo.enter_context(os.fdopen(descriptor, "rb", 0))
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        undo.pop_all()
    return reader


async def each_line(stream: asyncio.StreamReader, on_line: Callable[[bytes], None]) -> None:
    """Pass on line by line; one longer than LINE_BYTES_MAX is cut, so that memory stays bounded."""
    rest = b""
    while data := await stream.read(LINE_BYTES_MAX):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            on_line(line)
        if len(rest) >= LINE_BYTES_MAX:
            on_line(rest)
            rest = b""
    on_line(rest)


async def is_open(port: int, host: str = "127.0.0.1") -> bool:
    """Does somebody take connections there?"""
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def answers(port: int, request: bytes, *, within_s: float, host: str = "127.0.0.1") -> bool:
    """Does the process behind a port answer a request?

    A port alone stays open while its process hangs.
    """
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(request)
                return bool(await reader.read(1))
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


def _event_of(line: bytes) -> object:
    try:
        body = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return body.get("event") if isinstance(body, dict) else None
