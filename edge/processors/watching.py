"""Absence rules at work: each is a consumer that begins at the end, and has a timer of its own.

Cursor, state and alert commit together, so an alert that was raised is raised once, also over a
kill. What was received before the agent began to watch is not heard again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final

from edgewake.edge.log.consumer import Chunk, Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.forgetting import ABSENCES as PREFIX
from edgewake.edge.log.forgetting import forget_others
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.processors.config import AbsenceConfig
from edgewake.edge.processors.operators.absences import Absences
from edgewake.edge.things.streams import streams_of
from edgewake.protocol.clock import Clock
from edgewake.protocol.topics import EVERY_THING, of_thing, stream_and_thing

log = logging.getLogger("edgewake.processing")

PAUSE_S: Final = 1.0
"""Between two looks at a stream that speaks: who only asks whether it is there needs no look at
each reading. A quarter of `after_s` where that is less."""


class Watcher:
    """One absence rule and its consumer."""

    def __init__(
        self, config: AbsenceConfig, events: EventLog, clock: Clock, *, of_things: bool = False
    ) -> None:
        """`of_things`: each thing behind this device is watched, from its first reading on."""
        self._config = config
        self._events = events
        self._clock = clock
        self._of_things = of_things
        self._pause_s = min(PAUSE_S, config.after_s / 4)
        self._states = self._begun(None, [])
        self._raised = 0

    def _begun(self, kept: bytes | None, streams: Iterable[str]) -> Absences:
        """Start with these streams of the log; the name tells a thing's from the device's."""
        things = {stream_and_thing(stream)[1] for stream in streams} - {EVERY_THING, ""}
        return Absences.resumed(
            self._config,
            kept,
            things if self._of_things else {""},
            now_s=self._clock.monotonic_s(),
            now_ms=self._clock.now_ms(),
        )

    async def run(self) -> None:
        """Until cancelled or until the log is closed. Raises LogClosedError, sqlite3.Error."""
        consumer = await self._events.consumer(
            PREFIX + self._config.name,
            streams_of(self._config.stream, of_things=self._of_things),
            at_end=True,
        )
        while True:
            try:
                await self._watch(consumer)
            except LogRenewedError:
                log.warning(
                    "absence %s: the event log was damaged: it starts again", self._config.name,
                    extra={"event": "absence.log_renewed", "absence": self._config.name},
                )  # fmt: skip

    async def _watch(self, consumer: Consumer) -> None:
        self._states = self._begun(consumer.state, consumer.cursor)
        reading = asyncio.ensure_future(consumer.read())
        try:
            while True:
                await self._wait(reading, self._states.left_s(self._clock.monotonic_s()))
                if reading.done():
                    await self._heard(consumer, reading.result())
                    await self._clock.sleep(self._pause_s)
                    reading = asyncio.ensure_future(consumer.read())
                else:
                    await self._silent(consumer)
        finally:
            reading.cancel()
            await asyncio.wait({reading})

    async def _wait(self, reading: asyncio.Future[Chunk], seconds: float | None) -> None:
        """For a chunk, or so long.

        The read is not cancelled: what it had taken from memory would be passed by.
        """
        if seconds is None:
            await asyncio.wait({reading})
        elif seconds > 0:
            timer = asyncio.ensure_future(self._clock.sleep(seconds))
            try:
                either: set[asyncio.Future[Any]] = {reading, timer}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()

    async def _heard(self, consumer: Consumer, chunk: Chunk) -> None:
        things = {stream_and_thing(item.stream)[1] for item in chunk.items}
        told = self._states.heard(
            things if self._of_things else {""},
            now_s=self._clock.monotonic_s(),
            now_ms=self._clock.now_ms(),
        )
        await consumer.commit(
            chunk.cursor,
            state=self._states.encode() if told else None,
            derived=self._derived(told),
            wait=False,
        )

    async def _silent(self, consumer: Consumer) -> None:
        told = self._states.silent(now_s=self._clock.monotonic_s(), now_ms=self._clock.now_ms())
        if not told:
            return
        await consumer.commit(
            {}, state=self._states.encode(), derived=self._derived(told), wait=False
        )
        self._raised += len(told)
        for thing in told:
            log.warning(
                "absence %s: nothing of %s for %g s", self._config.name,
                of_thing(self._config.stream, thing) if thing else self._config.stream,
                self._config.after_s,
                extra={"event": "absence.raised", "absence": self._config.name,
                    "stream": self._config.stream, "thing": thing},
            )  # fmt: skip

    def _derived(self, told: Mapping[str, Reading]) -> dict[str, list[Reading]] | None:
        into = self._config.into
        return {
            of_thing(into, thing) if thing else into: [alert] for thing, alert in told.items()
        } or None

    def counts(self) -> dict[str, Any]:
        """For the status; `raised` since the start."""
        active = self._states.active
        of_things = {"things_silent": active} if self._of_things else {}
        return {
            "stream": self._config.stream,
            "into": self._config.into,
            "active": active > 0,
            "raised": self._raised,
            **of_things,
        }


class Watching:
    """All absence rules of an agent."""

    def __init__(
        self,
        configs: Sequence[AbsenceConfig],
        events: EventLog,
        clock: Clock,
        of_things: Container[str] = frozenset(),
    ) -> None:
        """`of_things`: streams of which each thing behind this device has one of its own."""
        self._events = events
        self.watchers = {
            config.name: Watcher(config, events, clock, of_things=config.stream in of_things)
            for config in configs
        }

    async def forget_others(self) -> None:
        """Forget the state of rules that were removed from the configuration.

        Raises LogClosedError, sqlite3.Error.
        """
        await forget_others(self._events, PREFIX, [PREFIX + name for name in self.watchers])

    def counts(self) -> dict[str, Any]:
        """For the status, by name."""
        return {name: watcher.counts() for name, watcher in self.watchers.items()}
