"""A log with one action over its stream `alerts`, and clocks that stand still."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pydantic import TypeAdapter

from edgewake.edge.actions.alert import Alert
from edgewake.edge.actions.config import AnyAction
from edgewake.edge.actions.runner import ActionRunner
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.keeping.work import no_failpoint
from edgewake.protocol.clock import Clock, SystemClock
from tests.services import PATIENCE_S

CONFIG: TypeAdapter[AnyAction] = TypeAdapter(AnyAction)
ALERT = Alert(
    "truck-12",
    "alerts",
    7,
    (1_790_000_000_000, {"rule": "too hot", "active": True, "note": "it's; $(reboot)\n"}),
)


def config(**keys: Any) -> AnyAction:
    """An action's configuration."""
    return CONFIG.validate_python({"name": "siren", "stream": "alerts", "pause_s": 0} | keys)


@asynccontextmanager
async def runs(
    events: EventLog,
    one: AnyAction,
    *,
    clock: Clock | None = None,
    failpoint: Callable[[str], None] = no_failpoint,
) -> AsyncIterator[ActionRunner]:
    """The action at work."""
    runner = ActionRunner(
        one, "truck-12", events, clock or SystemClock(), random.Random(1), failpoint
    )
    await runner.open()
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def raised(events: EventLog, *numbers: int, age_s: float = 0.0) -> None:
    """Alerts, durable."""
    log = events.stream("alerts")
    t = SystemClock().now_ms() - round(age_s * 1000)
    await log.accepted(log.append_all((t, {"rule": "too hot", "n": n}) for n in numbers))


class HeldClock:
    """A clock that moves when told; `sleep` waits until then."""

    def __init__(self, now_ms: int = 1_790_000_000_000) -> None:
        self._now_ms = now_ms
        self._now_s = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._now_s

    async def sleep(self, seconds: float) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now_s + seconds, sleeper))
        await sleeper

    @property
    def wakes(self) -> list[float]:
        """When somebody who sleeps wants to be woken."""
        return sorted(at for at, sleeper in self._sleepers if not sleeper.done())

    def advance(self, seconds: float) -> None:
        """Move both clocks forward and wake whose time has come."""
        self._now_s += seconds
        self._now_ms += round(seconds * 1000)
        for at, sleeper in self._sleepers:
            if at <= self._now_s and not sleeper.done():
                sleeper.set_result(None)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock."""
        self._now_ms += round(seconds * 1000)
