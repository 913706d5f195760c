"""Reads JSON objects from standard input, one a line: `{"t": 1790000000000, "speed_kmh": 51.2}`.

`t` (ms since 1970) may be missing. Where the source has maps, they read the lines. A thread reads,
because standard input may be a file, a pipe or a terminal and only a thread can wait for each of
them. When the log's queue is full it stops reading, so that the sender of a pipe waits. A bad line
is refused, counted and logged; the next one is read. What was read when the source is stopped is
still passed on: nobody could read it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Final, Literal

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.lines.json_objects import readings_of_messages, readings_of_objects
from edgewake.edge.sources.lines.lines import LineSplitter
from edgewake.edge.sources.mapping import MappedConfig, MessageMaps

log = logging.getLogger("edgewake.source")

CHUNK_BYTES: Final = 64 * 1024
"""Read at once; what one turn of the loop handles."""
PAUSES_S: Final[Mapping[Lane, float]] = {Lane.URGENT: 0.0, Lane.NORMAL: 0.1, Lane.BULK: 0.2}
"""Time between two reads of a pipe: lines that come one by one wait there, a part of what their
lane waits for its commit, and cost one turn together: at a hundred a second enough of them to be
checked by whole columns. One that comes alone, or a pipe that is full, is read at once."""
CHUNKS_WAITING_MAX: Final = 2
"""Chunks between the reading thread and the loop. At the bound the thread waits."""


class JsonLinesConfig(MappedConfig):
    """JSON objects on standard input, one a line."""

    type: Literal["json_lines"]

    def source(self, context: SourceContext) -> JsonLines:
        return JsonLines(lane=self.lane, maps=self.message_maps(context))

    def owns(self) -> str:
        return "standard input"


class JsonLines:
    """Queues a reading for each object. `fd` is read until its end; the agent goes on after it."""

    policy = Policy.BLOCK

    def __init__(
        self, fd: int = 0, *, lane: Lane = Lane.NORMAL, maps: MessageMaps | None = None
    ) -> None:
        self._fd = fd
        self._readings = readings_of_objects
        if maps is not None:
            self._readings = partial(readings_of_messages, maps)
        self._pause_s = PAUSES_S[lane]

    async def run(self, intake: Intake) -> None:
        splitter = LineSplitter()
        chunks = Chunks()
        stop, stopper = os.pipe()
        threading.Thread(target=self._read, args=(chunks, stop), name="stdin", daemon=True).start()
        has_ended = False
        try:
            while chunk := await chunks.get():
                await intake.put(self._readings(intake, splitter.feed(chunk)))
            has_ended = True
            await intake.put(self._readings(intake, splitter.last()))
        except asyncio.CancelledError:
            os.close(stopper)
            stopper = -1
            while not has_ended and (chunk := await chunks.get()):
                intake.put_last(self._readings(intake, splitter.feed(chunk)))
            intake.put_last(self._readings(intake, splitter.last()))
            raise
        finally:
            if stopper >= 0:
                os.close(stopper)
        log.info(
            "standard input ended",
            extra={"event": "source.ended", "source": intake.name, "taken": intake.taken},
        )

    def _read(self, chunks: Chunks, stop: int) -> None:
        """Read in a thread; end with the input, the loop, or when the other end of `stop` closes.

        Then it says so.
        """
        poll = select.poll()
        for fd in (self._fd, stop):
            poll.register(fd, select.POLLIN)
        with contextlib.suppress(RuntimeError, OSError):
            while stop not in dict(poll.poll()) and (chunk := os.read(self._fd, CHUNK_BYTES)):
                chunks.put(chunk)
                if len(chunk) < CHUNK_BYTES:
                    time.sleep(self._pause_s)
        with contextlib.suppress(RuntimeError):
            chunks.end()
        os.close(stop)


class Chunks:
    """Passes chunks from the reading thread to the loop that it was made in.

    It takes a turn of the loop and a lock for each. Awaiting a queue's coroutine instead takes four
    turns, which is what a device spends on most when lines come one by one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        """At most CHUNKS_WAITING_MAX, and the end."""
        self._room = threading.Semaphore(CHUNKS_WAITING_MAX)

    def put(self, chunk: bytes) -> None:
        """In the thread: waits for room. Raises RuntimeError where the loop is closed."""
        self._room.acquire()
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, chunk)

    def end(self) -> None:
        """In the thread: no more come. Raises RuntimeError where the loop is closed."""
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, b"")

    async def get(self) -> bytes:
        """The next one; nothing at the end."""
        chunk = await self._waiting.get()
        self._room.release()
        return chunk
