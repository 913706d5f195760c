"""A program's output: each line that it writes is a reading.

With `interval_s` it is started at intervals and has to end within `timeout_s`; without, it runs on,
and is started again when it ends, or has written nothing for `silence_s`; later each time. It has a
session of its own, of which nothing is left when it is over. Without room its output is not read,
so it waits. A program that fails is said with the end of what it wrote to its standard error.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from typing import Annotated, Final, Literal

from edgewake.edge import program
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.line_format import LineFormat, LinesConfig
from edgewake.edge.sources.lines.lines import LineSplitter
from edgewake.protocol.errors import LocalError
from edgewake.protocol.plain import Check, key

CHUNK_BYTES: Final = 16 * 1024
"""Bytes of output that are read at once."""
SAID_BYTES: Final = 400
"""Bytes of the end of its standard error that are kept, to say why it failed."""


def _command(words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not words[0] or any("\0" in word for word in words):
        raise ValueError('expected a program and its arguments: ["/usr/bin/sensors", "-j"]')
    return words


class ExecConfig(LinesConfig):
    """Output of a program, a reading a line."""

    type: Literal["exec"]
    command: Annotated[tuple[str, ...], Check(_command)]
    """The program and its arguments; no shell reads them."""
    interval_s: float | None = key(default=None, ge=0.1, le=86_400)
    """Seconds from one start to the next; none: it runs on, and is started again when it ends."""
    timeout_s: float = key(default=30.0, gt=0, le=3600)
    """Seconds that it has, with `interval_s`; then it is killed."""
    silence_s: float | None = key(default=None, gt=0, le=86_400)
    """Seconds without a word after which it is killed and started again, without `interval_s`:
    a program may hang, on a bus or a file system that is gone. None: it may be silent for ever."""
    format: LineFormat = LineFormat.JSON
    """json: each line is a JSON object; text: each becomes the field `line`; csv: values of
    `columns`; influx: a point of InfluxDB's line protocol; nmea: a sentence of NMEA 0183; gpsd: a
    report of gpsd."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_columns(self.format)
        if self.silence_s is not None and self.interval_s is not None:
            raise ValueError("silence_s: expected without interval_s, with which timeout_s ends it")

    def source(self, context: SourceContext) -> Exec:
        return Exec(self, context)


class Exec:
    """Runs the program, and queues a reading for each line that it writes."""

    policy = Policy.BLOCK

    def __init__(self, config: ExecConfig, context: SourceContext) -> None:
        self._config = config
        self._clock = context.clock
        self._lines = config.reader(config.format, config.message_maps(context))

    async def run(self, intake: Intake) -> None:
        interval_s = self._config.interval_s
        if interval_s is None:
            await self._once(intake)
            raise LocalError(f"{self._config.command[0]}: ended")
        due_s = self._clock.monotonic_s()
        while True:
            try:
                async with asyncio.timeout(self._config.timeout_s):
                    await self._once(intake)
            except TimeoutError as error:
                raise LocalError(
                    f"{self._config.command[0]}: not over after {self._config.timeout_s:g} s"
                ) from error
            due_s = max(due_s + interval_s, self._clock.monotonic_s())
            await self._clock.sleep(due_s - self._clock.monotonic_s())

    async def _once(self, intake: Intake) -> None:
        """Run the program once, from its start to its end. Raises LocalError where it fails."""
        name = self._config.command[0]
        try:
            process = await program.start(
                self._config.command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
            )
        except (OSError, ValueError) as error:
            raise LocalError(f"{name}: {error}") from error
        errors = asyncio.create_task(_tail(process))
        try:
            await self._read(process, intake)
            code = await process.wait()
            said = (await errors).decode("utf-8", "replace").strip()
        finally:
            errors.cancel()
            await program.end(process)
        if code != 0:
            raise LocalError(f"{name}: exit code {code}{': ' if said else ''}{said}")

    async def _read(self, process: Process, intake: Intake) -> None:
        assert process.stdout is not None
        splitter = LineSplitter()
        while data := await self._heard(process.stdout):
            await intake.put(self._lines.readings(intake, splitter.feed(data)))
        await intake.put(self._lines.readings(intake, splitter.last()))

    async def _heard(self, output: asyncio.StreamReader) -> bytes:
        """What it writes next; empty at its end. Raises LocalError where it writes nothing."""
        try:
            async with asyncio.timeout(self._config.silence_s):
                return await output.read(CHUNK_BYTES)
        except TimeoutError as error:
            raise LocalError(
                f"{self._config.command[0]}: nothing heard for {self._config.silence_s:g} s"
            ) from error


async def _tail(process: Process) -> bytes:
    """The end of what it writes to its standard error."""
    assert process.stderr is not None
    kept = b""
    while data := await process.stderr.read(CHUNK_BYTES):
        kept = (kept + data)[-SAID_BYTES:]
    return kept
