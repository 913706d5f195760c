"""One source in its cage: what it does wrong harms nobody but itself.

A source that raises, or cannot even be made, is said and started again, later each time, and not
before the other side wants it (`Unavailable` says so); all others, the log and the uplink go on.
One that has ended stays ended. What blocks does so in a thread of its own (`daemon_thread`), and
what floods meets its queue's bound and its policy (`intake`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Any, Final

from edgewake.edge.error_text import error_text
from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.sources.source import Source
from edgewake.protocol.backoff import Backoff
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.source")

RESTART_MIN_S: Final = 1.0
"""First wait before a source is started again; doubled and jittered."""
RESTART_MAX_S: Final = 60.0
"""Bound of it: the longest time that a source is missed after what it reads came back."""
CANCEL_AGAIN_S: Final = 0.5
"""A source that was told to end and has not is told again after this many seconds, until it
does."""


class SourceState(StrEnum):
    """The states of a source."""

    RUNNING = "running"
    WAITING = "waiting"  # it failed, and is started again
    ENDED = "ended"  # what it read has ended


class Supervisor:
    """Runs one source until it ends. `make` makes it and is asked again until it succeeds once."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Source],
        intake: Intake,
        clock: Clock,
        backoff: Backoff,
        *,
        policy: Policy | None = None,
    ) -> None:
        """`policy`: what the configuration says; None: the source's own."""
        self.state = SourceState.RUNNING
        self.failures = 0
        self.error: str | None = None
        """Why it failed last."""
        self._name = name
        self._make = make
        self._intake = intake
        self._clock = clock
        self._backoff = backoff
        self._policy = policy
        self._source: Source | None = None

    async def run(self) -> None:
        """Until the source ends, or cancelled."""
        while self.state is not SourceState.ENDED:
            began_s = self._clock.monotonic_s()
            try:
                self.state = SourceState.RUNNING
                if self._source is None:
                    self._source = self._make()
                    self._intake.policy = self._policy or self._source.policy
                await _lived(self._source.run(self._intake))
                self.state = SourceState.ENDED
            except (Exception, SystemExit) as error:  # whatever a source raises is its own affair
                self._backoff.lasted(self._clock.monotonic_s() - began_s)
                await self._wait_after(error)

    async def _wait_after(self, error: BaseException) -> None:
        self.state = SourceState.WAITING
        self.failures += 1
        self.error = error_text(error)
        wait_s = self._backoff.next_s()
        if isinstance(error, Unavailable):
            wait_s = max(wait_s, error.retry_after_s)
        log.error(
            "source %s failed: %s; started again in %.0f s", self._name, self.error, wait_s,
            extra={"event": "source.failed", "source": self._name, "failures": self.failures},
            exc_info=self.failures == 1,
        )  # fmt: skip
        await self._clock.sleep(wait_s)

    def counts(self) -> dict[str, Any]:
        """The counts for the status."""
        return {
            "state": self.state.value,
            "failures": self.failures,
            "error": self.error,
            **self._intake.counts(),
        }


async def _lived(life: Coroutine[Any, Any, None]) -> None:
    """Await a source's life.

    Cancelled, cancel it until it ends: a library may lose a cancellation that comes together with
    an answer, as `asyncio.wait_for` does before Python 3.12.
    """
    living = asyncio.create_task(_in_its_cage(life))
    try:
        await asyncio.wait({living})
    except asyncio.CancelledError:
        while not living.done():
            living.cancel()
            await asyncio.wait({living}, timeout=CANCEL_AGAIN_S)
        if not living.cancelled():
            # looked at: it failed while it was to end, which concerns nobody any more
            living.exception()
        raise
    if living.cancelled():
        # A CancelledError would end its supervisor, and nobody would hear of it.
        raise RuntimeError("it cancelled itself")
    living.result()


async def _in_its_cage(life: Coroutine[Any, Any, None]) -> None:
    """What asks the program to end, out of a task, would end it."""
    try:
        await life
    except SystemExit as error:
        raise RuntimeError(f"it asked the program to exit: {error.code}") from error
