"""What a source passes on, kept in memory: a log that is full, slow or broken when a test says so,
and a source run against it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from edgewake.edge.intake.intake import Intake
from edgewake.edge.intake.intake_policy import Policy
from edgewake.edge.log.event_log import LogBusyError
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.sources.config import SourceContext
from edgewake.edge.sources.source import Source
from edgewake.protocol.clock import Clock, FakeClock, SystemClock
from tests.services import PATIENCE_S


class MemorySink:
    """The end of an `Intake`.

    What is put is one commit; `positions` are those of all commits that had one.
    """

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.commits: list[tuple[int, tuple[str, str] | None]] = []
        """(readings, position) of each."""
        self.lost: Counter[str] = Counter()
        self.failures: list[Exception] = []
        """Raised by the next calls of `put`, in place of taking anything."""
        self.is_full = False
        self.waiting = 0
        """Times that a source began to wait for room."""
        self.durable_now = asyncio.Event()
        """Clear it: nothing is durable until it is set."""
        self.durable_now.set()
        self._changed = asyncio.Event()

    @property
    def positions(self) -> list[str]:
        """The values."""
        return [position[1] for _, position in self.commits if position is not None]

    def values(self, field: str = "n") -> list[object]:
        """Of a field, in order; None where a reading has none."""
        return [fields.get(field) for _, fields in self.readings]

    async def room(self, *, promised: bool = False) -> None:
        self.waiting += 1
        while self.is_full:
            self._changed.clear()
            await self._changed.wait()

    def free(self) -> None:
        """There is room again."""
        self.is_full = False
        self._changed.set()

    def put(
        self, readings: Sequence[Reading], position: tuple[str, str] | None, lost: Mapping[str, int]
    ) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if self.is_full:
            raise LogBusyError
        self.readings += readings
        self.commits.append((len(readings), position))
        self.lost.update(lost)

    def offer(self, readings: Sequence[Reading], position: tuple[str, str] | None) -> None:
        self.put(readings, position, {})

    async def kept(self) -> None:
        pass

    async def durable(self) -> None:
        await self.durable_now.wait()

    def lose(self, count: int, reason: str) -> None:
        self.lost[reason] += count

    def lose_these(self, readings: Sequence[Reading], reason: str) -> None:
        self.lost[reason] += len(readings)


def intake_of(
    sink: MemorySink, policy: Policy = Policy.BLOCK, clock: Clock | None = None
) -> Intake:
    """A way into it."""
    return Intake("source", sink, policy, clock or FakeClock())


def context(position: str | None = None, clock: Clock | None = None) -> SourceContext:
    """What a source is given, with what the log remembers of it."""
    return SourceContext("d1", clock or SystemClock(), lambda _: position)


class Running:
    """A source that runs."""

    def __init__(self, sink: MemorySink, intake: Intake, task: asyncio.Task[None]) -> None:
        self.sink, self.intake, self.task = sink, intake, task

    async def until(self, condition: object) -> None:
        """Wait for a condition; what the source raises meanwhile is raised."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():  # type: ignore[operator]
                if self.task.done():
                    self.task.result()
                    raise AssertionError("the source ended too early")
                await asyncio.sleep(0.002)

    async def error(self) -> BaseException | None:
        """How it ended: what it raised, None where it raised nothing."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait({self.task})
        return self.task.exception()


@asynccontextmanager
async def running(
    source: Source, sink: MemorySink | None = None, policy: Policy | None = None
) -> AsyncIterator[Running]:
    """Run it, without a supervisor: what it raises ends it."""
    sink = sink or MemorySink()
    intake = intake_of(sink, policy or source.policy)
    task = asyncio.create_task(source.run(intake))
    try:
        yield Running(sink, intake, task)
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # looked at
