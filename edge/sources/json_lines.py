"""JSON objects on standard input, one a line: `{"t": 1790000000000, "speed_kmh": 51.2}`; `t` (ms since 1970) may be missing.

A thread reads, because standard input may be a file, a pipe or a terminal and only a thread can wait for each of them. When the log's queue
is full it stops reading, so that the sender of a pipe waits. A bad line is refused, counted and said; the next one is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from typing import Final

from edgewake.edge.intake import Intake, Policy
from edgewake.edge.sources.lines import Line, LineSplitter
from edgewake.protocol.errors import RejectReason

log = logging.getLogger("edgewake.source")

CHUNK_BYTES: Final = 64 * 1024
"""Read at once; what one turn of the loop handles."""
CHUNKS_WAITING_MAX: Final = 2
"""Chunks between the reading thread and the loop. At the bound the thread waits."""


class JsonLines:
    """The source. `fd` is read until its end; the agent goes on after it."""

    policy = Policy.BLOCK

    def __init__(self, fd: int = 0) -> None:
        self._fd = fd

    async def run(self, intake: Intake) -> None:
        splitter = LineSplitter()
        chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_WAITING_MAX)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(chunks, loop), name="stdin", daemon=True).start()
        while chunk := await chunks.get():
            await self._take(intake, splitter.feed(chunk))
        await self._take(intake, splitter.last())
        log.info("standard input ended", extra={"event": "source.ended", "source": intake.name, "taken": intake.taken})

    async def _take(self, intake: Intake, lines: list[Line]) -> None:
        readings = []
        for line in lines:
            if line.too_long:
                intake.refuse(RejectReason.OVERSIZE, "a line past its bound")
            elif (reading := intake.check_line(line.text)) is not None:
                readings.append(reading)
        await intake.put(readings)

    def _read(self, chunks: asyncio.Queue[bytes], loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own; ends with the input, or with the loop."""
        with contextlib.suppress(RuntimeError, OSError, asyncio.CancelledError):
            while chunk := os.read(self._fd, CHUNK_BYTES):
                asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
            asyncio.run_coroutine_threadsafe(chunks.put(b""), loop).result()
