"""Absence rules at work: each is a consumer that begins at the end, and has a timer of its own.

Cursor, state and alert commit together, so an alert that was raised is raised once, also over a
kill. What was received before the agent began to watch is not heard again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

from edgewake.edge.log.consumer import Chunk, Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.forgetting import ABSENCES as PREFIX
from edgewake.edge.log.forgetting import forget_others
from edgewake.edge.processors.config import AbsenceConfig
from edgewake.edge.processors.operators import absence
from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.processing")

PAUSE_S: Final = 1.0
"""Between two looks at a stream that speaks: who only asks whether it is there needs no look at
each reading. A quarter of `after_s` where that is less."""


class Watcher:
    """One absence rule and its consumer."""

    def __init__(self, config: AbsenceConfig, events: EventLog, clock: Clock) -> None:
        self._config = config
        self._events = events
        self._clock = clock
        self._pause_s = min(PAUSE_S, config.after_s / 4)
        self._state = absence.resumed(None, now_s=clock.monotonic_s(), now_ms=clock.now_ms())
        self._raised = 0

    async def run(self) -> None:
        """Until cancelled or until the log is closed. Raises LogClosedError, sqlite3.Error."""
        consumer = await self._events.consumer(
            PREFIX + self._config.name, [self._config.stream], at_end=True
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
        self._state = absence.resumed(
            consumer.state, now_s=self._clock.monotonic_s(), now_ms=self._clock.now_ms()
        )
        reading = asyncio.ensure_future(consumer.read())
        try:
            while True:
                left_s = self._config.after_s - self._state.silent_for_s(self._clock.monotonic_s())
                await self._wait(reading, None if self._state.active else left_s)
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
        was_active = self._state.active
        state, alerts = absence.heard(
            self._config, self._state, now_s=self._clock.monotonic_s(), now_ms=self._clock.now_ms()
        )
        await consumer.commit(
            chunk.cursor,
            state=state.encode() if was_active else None,
            derived={self._config.into: alerts} if alerts else None,
            wait=False,
        )
        self._state = state

    async def _silent(self, consumer: Consumer) -> None:
        state, alerts = absence.silent(
            self._config, self._state, now_s=self._clock.monotonic_s(), now_ms=self._clock.now_ms()
        )
        if alerts:
            await consumer.commit(
                {}, state=state.encode(), derived={self._config.into: alerts}, wait=False
            )
            self._raised += 1
            log.warning(
                "absence %s: nothing of %s for %g s", self._config.name, self._config.stream,
                self._config.after_s,
                extra={"event": "absence.raised", "absence": self._config.name,
                    "stream": self._config.stream},
            )  # fmt: skip
        self._state = state

    def counts(self) -> dict[str, Any]:
        """For the status; `raised` since the start."""
        return {
            "stream": self._config.stream,
            "into": self._config.into,
            "active": self._state.active,
            "raised": self._raised,
        }


class Watching:
    """All absence rules of an agent."""

    def __init__(self, configs: Sequence[AbsenceConfig], events: EventLog, clock: Clock) -> None:
        self._events = events
        self.watchers = {config.name: Watcher(config, events, clock) for config in configs}

    async def forget_others(self) -> None:
        """Forget the state of rules that were removed from the configuration.

        Raises LogClosedError, sqlite3.Error.
        """
        await forget_others(self._events, PREFIX, [PREFIX + name for name in self.watchers])

    def counts(self) -> dict[str, Any]:
        """For the status, by name."""
        return {name: watcher.counts() for name, watcher in self.watchers.items()}
