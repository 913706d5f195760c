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
from collections.abc import Container, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final

import orjson

from edgewake.edge.log.consumer import Chunk, Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.forgetting import SKETCHES as PREFIX
from edgewake.edge.log.forgetting import forget_others
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Missed, Received
from edgewake.edge.sketches import windows
from edgewake.edge.sketches.config import SketchConfig
from edgewake.edge.sketches.workshop import MakerGone, Workshop, workshop
from edgewake.edge.things.streams import made_of, streams_of
from edgewake.protocol.backoff import Backoff
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
        self,
        config: SketchConfig,
        events: EventLog,
        clock: Clock,
        rng: random.Random,
        *,
        of_things: bool = False,
    ) -> None:
        """`of_things`: each thing behind this device has sketches of its own.

        Raises LocalError where a kind needs a library that is not there.
        """
        if not OWN_KINDS.issuperset(config.kinds) and find_spec("datasketches") is None:
            raise LocalError(
                f"sketch of {config.stream!r}: hll, theta, kll and top need the library of the "
                "extra `edgewake[edge-sketches]`"
            )
        self._config = config
        self._of_things = of_things
        self._events = events
        self._clock = clock
        self._backoff = Backoff(rng, first_s=RESTART_MIN_S, max_s=RESTART_MAX_S)
        self._windows = self._resumed(None)
        self._ended: set[str] = set()
        """Streams of the log of which a window is over since the last commit."""
        self._missed = self._made = self._restarts = 0
        self.pid: int | None = None
        """The process id of the child, while it lives."""

    async def open(self) -> Consumer:
        """Where its last commit left it. Raises LogClosedError, sqlite3.Error."""
        return await self._events.consumer(
            PREFIX + self._config.stream,
            streams_of(self._config.stream, of_things=self._of_things),
        )

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
                self._backoff.lasted(self._clock.monotonic_s() - began_s)
                self._say("restarted", f"{error}: made again from the log")
                await self._clock.sleep(self._backoff.next_s())
            finally:
                self.pid = None

    async def _follow(self, consumer: Consumer, maker: Workshop) -> None:
        self._windows = self._resumed(consumer.state)
        self._ended.clear()
        while True:
            await self._take(consumer, maker, await consumer.read(READ_READINGS))
            await asyncio.sleep(0)  # all of the above may have found everything at hand

    async def _take(self, consumer: Consumer, maker: Workshop, chunk: Chunk) -> None:
        """Fill the sketches, and send those of all windows that are over, in one commit."""
        made: dict[str, list[Reading]] = {}
        for item in chunk.items:
            if isinstance(item, Missed):
                self._missed += item.count
                self._say("missed", f"{item.count} readings are missing: {item.reason}")
                continue
            if readings := await self._fill(maker, item):
                made.setdefault(made_of(item.stream, STREAM), []).extend(readings)
                self._ended.add(item.stream)
        if self._ended:
            await self._commit(consumer, made)

    async def _fill(self, maker: Workshop, item: Received) -> list[Reading]:
        """The sketches of windows of one stream of the log that are over."""
        values: dict[tuple[str, str], list[Any]] = {}
        made: list[Reading] = []
        open_ = self._windows.get(item.stream) or self._fresh()
        for position, (t, fields) in enumerate(item.readings, start=item.first):
            before, (open_, placed) = open_, open_.place(position, t)
            if placed.over:
                await maker.take([(*where, some) for where, some in values.items()])
                values = {}
                for window in placed.over:
                    made += await self._over(maker, item.stream, window, before.span_ms(window))
                self._ended.add(item.stream)
            if placed.window is not None:
                for field in self._config.fields:
                    if (value := fields.get(field)) is not None:
                        where = (_window_name(item.stream, placed.window), field)
                        values.setdefault(where, []).append(value)
        await maker.take([(*where, some) for where, some in values.items()])
        self._windows[item.stream] = open_
        return made

    async def _over(
        self, maker: Workshop, stream: str, window: int, span_ms: tuple[int, int]
    ) -> list[Reading]:
        start, end = span_ms
        made: list[Reading] = []
        for field, kind, readings, sketch in await maker.over(_window_name(stream, window)):
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
        return made

    async def _commit(self, consumer: Consumer, made: Mapping[str, Sequence[Reading]]) -> None:
        """What is over, with the cursors of what is not."""
        cursor = {stream: self._windows[stream].needed_from - 1 for stream in self._ended}
        await consumer.commit(cursor, state=self._encoded(), derived=made or None)
        self._ended.clear()
        self._made += sum(map(len, made.values()))

    def _encoded(self) -> bytes:
        return orjson.dumps(
            {stream: orjson.Fragment(open_.encode()) for stream, open_ in self._windows.items()}
        )

    def _fresh(self, kept: bytes | None = None) -> windows.Windows:
        return windows.resumed(
            kept, size_ms=self._config.window_s * 1000, grace_ms=round(self._config.grace_s * 1000)
        )

    def _resumed(self, kept: bytes | None) -> dict[str, windows.Windows]:
        """By stream of the log."""
        try:
            found: Any = orjson.loads(kept or b"null")
        except orjson.JSONDecodeError:
            return {}
        by_stream = found.items() if isinstance(found, dict) else ()
        return {stream: self._fresh(orjson.dumps(one)) for stream, one in by_stream}

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
        all_windows = self._windows.values()
        exact = {
            "counted": sum(open_.counted for open_ in all_windows),
            "late": sum(open_.late for open_ in all_windows),
        }
        return {
            **exact,
            "made": self._made,
            "missed": self._missed,
            "restarts": self._restarts,
            "pid": self.pid,
        }


def _window_name(stream: str, window: int) -> str:
    """The name of a window, for the child."""
    return f"{stream} {window}"


class Sketching:
    """All sketches of an agent."""

    def __init__(
        self,
        configs: Sequence[SketchConfig],
        events: EventLog,
        clock: Clock,
        rng: random.Random,
        of_things: Container[str] = frozenset(),
    ) -> None:
        """`of_things`: streams of which each thing behind this device has one of its own."""
        self._events = events
        self.sketchers = {
            config.stream: Sketcher(
                config, events, clock, rng, of_things=config.stream in of_things
            )
            for config in configs
        }

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
