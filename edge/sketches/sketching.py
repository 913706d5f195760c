"""Makes sketches: a consumer reads a stream, a child process fills them, one set per window.

They are sent when the window is over. Cursor, state and sketches of a window commit together, and
the cursor stands before the first reading of what is still open. So when the child dies, or the
agent, the sketches are made again from the log: nothing is left out, nothing is in one twice. The
price is that the log keeps the readings of open windows, within `log.consumer_bytes`; what had to
go is counted as missed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from base64 import b64decode
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from edgewake.edge.backoff import Backoff
from edgewake.edge.log.consumer import Chunk, Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.forgetting import SKETCHES as PREFIX
from edgewake.edge.log.forgetting import forget_others
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Missed
from edgewake.edge.sketches import windows
from edgewake.edge.sketches.config import SketchConfig
from edgewake.edge.sketches.workshop import MakerGone, Workshop, workshop
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError
from edgewake.protocol.sketches.sketch import STREAM, DeviceSketch, SketchKind

log = logging.getLogger("edgewake.sketch")

READ_READINGS: Final = 2_000
"""Readings that are read, and given to the child, at once."""
RESTART_MIN_S: Final = 0.2
"""First wait before a child is started again; doubled and jittered."""
RESTART_MAX_S: Final = 60.0
"""Bound of it: a child that cannot live costs a start a minute."""
OWN_KINDS: Final = frozenset({SketchKind.NUMBERS, SketchKind.COUNT_MIN, SketchKind.BLOOM})
"""Kinds that need no library."""


class Sketcher:
    """Makes the sketches of one stream."""

    def __init__(
        self, config: SketchConfig, events: EventLog, clock: Clock, rng: random.Random
    ) -> None:
        """Raises LocalError where a kind needs a library that is not there."""
        if not OWN_KINDS.issuperset(config.kinds) and find_spec("datasketches") is None:
            raise LocalError(
                f"sketch of {config.stream!r}: hll, theta, kll and top need the library of the "
                "extra `edgewake[edge-sketches]`"
            )
        self._config = config
        self._events = events
        self._clock = clock
        self._backoff = Backoff(RESTART_MIN_S, RESTART_MAX_S, rng)
        self._windows = self._resumed(None)
        self._missed = self._made = self._restarts = 0
        self.pid: int | None = None
        """The process id of the child, while it lives."""

    async def open(self) -> Consumer:
        """Where its last commit left it. Raises LogClosedError, sqlite3.Error."""
        return await self._events.consumer(PREFIX + self._config.stream, [self._config.stream])

    async def run(self) -> None:
        """Until cancelled or until the log is closed. Raises LogClosedError, sqlite3.Error."""
        while True:
            began_s = self._clock.monotonic_s()
            try:
                async with workshop(self._config.kinds) as maker:
                    self.pid = maker.pid
                    await self._follow(await self.open(), maker)
            except LogRenewedError as error:
                self._say("log_renewed", str(error))
            except MakerGone as error:
                self._restarts += 1
                self._backoff.connection_lasted(self._clock.monotonic_s() - began_s)
                self._say("restarted", f"{error}: made again from the log")
                await self._clock.sleep(self._backoff.next_s())
            finally:
                self.pid = None

    async def _follow(self, consumer: Consumer, maker: Workshop) -> None:
        self._windows = self._resumed(consumer.state)
        while True:
            await self._take(consumer, maker, await consumer.read(READ_READINGS))
            await asyncio.sleep(0)  # all of the above may have found everything at hand

    async def _take(self, consumer: Consumer, maker: Workshop, chunk: Chunk) -> None:
        values: dict[tuple[int, str], list[Any]] = {}
        for item in chunk.items:
            if isinstance(item, Missed):
                self._missed += item.count
                self._say("missed", f"{item.count} readings are missing: {item.reason}")
                continue
            for position, (t, fields) in enumerate(item.readings, start=item.first):
                before, (self._windows, placed) = self._windows, self._windows.place(position, t)
                if placed.over:
                    await maker.take([(*where, some) for where, some in values.items()])
                    values = {}
                    await self._send(consumer, maker, before, placed.over)
                if placed.window is not None:
                    for field in self._config.fields:
                        if (value := fields.get(field)) is not None:
                            values.setdefault((placed.window, field), []).append(value)
        await maker.take([(*where, some) for where, some in values.items()])

    async def _send(
        self, consumer: Consumer, maker: Workshop, before: windows.Windows, over: Sequence[int]
    ) -> None:
        """What is over, with the cursor of what is not."""
        made: list[Reading] = []
        for window in over:
            start, end = before.span_ms(window)
            for field, kind, readings, sketch in await maker.over(window):
                one = DeviceSketch(
                    self._config.stream,
                    field,
                    SketchKind(kind),
                    start,
                    end,
                    readings,
                    b64decode(sketch),
                    self._config.beside,
                )
                made.append((start, one.fields()))
        cursor = {self._config.stream: self._windows.needed_from - 1}
        await consumer.commit(
            cursor, state=self._windows.encode(), derived={STREAM: made} if made else None
        )
        self._made += len(made)

    def _resumed(self, kept: bytes | None) -> windows.Windows:
        return windows.resumed(
            kept, size_ms=self._config.window_s * 1000, grace_ms=round(self._config.grace_s * 1000)
        )

    def _say(self, event: str, text: str) -> None:
        log.warning(
            "sketch of %s: %s",
            self._config.stream,
            text,
            extra={"event": f"sketch.{event}", "stream": self._config.stream},
        )

    def counts(self) -> dict[str, Any]:
        """Figures for the status.

        `counted` and `late` are since the sketches began, the rest since the agent did.
        """
        exact = {"counted": self._windows.counted, "late": self._windows.late}
        return {
            **exact,
            "made": self._made,
            "missed": self._missed,
            "restarts": self._restarts,
            "pid": self.pid,
        }


class Sketching:
    """All sketches of an agent."""

    def __init__(
        self, configs: Sequence[SketchConfig], events: EventLog, clock: Clock, rng: random.Random
    ) -> None:
        self._events = events
        self.sketchers = {config.stream: Sketcher(config, events, clock, rng) for config in configs}

    async def forget_others(self) -> None:
        """Forget the state of sketches that were removed from the configuration.

        Raises LogClosedError, sqlite3.Error.
        """
        await forget_others(self._events, PREFIX, [PREFIX + stream for stream in self.sketchers])

    async def open(self) -> None:
        """Before the first reading comes. Raises as `forget_others`."""
        for sketcher in self.sketchers.values():
            await sketcher.open()

    def counts(self) -> dict[str, Any]:
        """For the status, by stream."""
        return {stream: sketcher.counts() for stream, sketcher in self.sketchers.items()}
