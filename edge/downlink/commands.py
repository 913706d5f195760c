"""Commands: what the device's configuration allows, run without a shell, bounded in time and output, answered once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from edgewake.edge.downlink.config import CommandConfig
from edgewake.protocol.downlink import Answer, AnswerState, Command, DownKind

log = logging.getLogger("edgewake.downlink")

CHUNK_BYTES: Final = 16 * 1024
"""Read at once of a command's output."""
REAP_S: Final = 5.0
"""Wait for a killed command to end and its output to close: a process that left its group may hold it open."""


def refusal(command: Command, allowed: Mapping[str, CommandConfig], *, was_begun: bool) -> Answer | None:
    """Why a command is not run; None: it may be."""
    config = allowed.get(command.name)
    if config is None:
        known = ", ".join(sorted(allowed)) or "none"
        return _answer(command, AnswerState.REFUSED, f"no command {command.name!r} is allowed on this device; allowed: {known}")
    if len(command.args) > config.args_max:
        return _answer(command, AnswerState.REFUSED, f"{len(command.args)} arguments: expected at most {config.args_max}")
    if any(arg.startswith("-") for arg in command.args):
        return _answer(command, AnswerState.REFUSED, "an argument begins with a hyphen: expected values, no options")
    if was_begun and not config.repeatable:
        return _answer(command, AnswerState.INTERRUPTED, "the agent ended while it ran")
    return None


async def run(command: Command, config: CommandConfig) -> Answer:
    """Run an allowed command to its end, or kill it."""
    argv = [*config.argv, *command.args]
    log.info("command %s begins: %s", command.id, command.name, extra={"event": "downlink.command", "id": command.id})
    output = bytearray()
    async with _pipe() as (stdout, stream):
        try:
            process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=stdout, stderr=STDOUT, start_new_session=True)
        except (OSError, ValueError) as error:
            return _answer(command, AnswerState.FAILED, f"{argv[0]} cannot be started: {error}")
        finally:
            os.close(stdout)
        reading = asyncio.create_task(_read(stream, output, config.output_bytes_max))
        code: int | None = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(config.timeout_s):
                    code = await process.wait()
        finally:
            await _end(process, reading)
    if code is None:
        return _answer(command, AnswerState.FAILED, f"killed after {config.timeout_s:g} s", output=_text(output))
    state = AnswerState.DONE if code == 0 else AnswerState.FAILED
    return _answer(command, state, "" if code == 0 else f"exit code {code}", exit_code=code, output=_text(output))


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[int, asyncio.StreamReader]]:
    """A pipe of our own: asyncio closes that of a subprocess only when the last who holds it has ended."""
    out, into = os.pipe()
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(out, "rb", 0))
    try:
        yield into, stream
    finally:
        transport.close()


async def _read(stream: asyncio.StreamReader, output: bytearray, bytes_max: int) -> None:
    while chunk := await stream.read(CHUNK_BYTES):
        output += chunk[: bytes_max - len(output)]


async def _end(process: Process, reading: asyncio.Task[None]) -> None:
    """Kill what is left of it and of what it started, and read what they wrote. Who left its group lives, and may hold the pipe open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    ended = asyncio.create_task(process.wait())
    await asyncio.wait({ended, reading}, timeout=REAP_S)
    if not ended.done():
        log.error("a command cannot be killed", extra={"event": "downlink.unkillable", "pid": process.pid})
    for task in (ended, reading):
        task.cancel()


def _text(output: bytearray) -> str:
    return output.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _answer(command: Command, state: AnswerState, detail: str, *, exit_code: int | None = None, output: str | None = None) -> Answer:
    return Answer(id=command.id, kind=DownKind.COMMAND, state=state, detail=detail, name=command.name, exit_code=exit_code, output=output)
