"""Absence rules at work, over restarts and clocks that are set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from edgewake.edge.log.consumer import Consumer
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import Received
from edgewake.edge.processors.config import AbsenceConfig
from edgewake.edge.processors.watching import PAUSE_S, PREFIX, Watcher, Watching
from tests.edge.actions.helpers import HeldClock, until
from tests.edge.helpers import opened, put

T0 = 1_790_000_000_000


QUIET = AbsenceConfig(name="quiet", stream="speed", into="alerts", after_s=10)


def raised(events: EventLog) -> list[Reading]:
    """The alerts that are in the log."""
    consumer: Consumer = events.open_consumer("check", ["alerts"])
    return [
        reading
        for item in consumer.poll().items
        if isinstance(item, Received)
        for reading in item.readings
    ]


def alert(t_s: float, since_s: float, *, active: bool) -> Reading:
    return T0 + round(t_s * 1000), {
        "rule": "quiet", "active": active, "since_ms": T0 + round(since_s * 1000),
        "of_stream": "speed",
    }  # fmt: skip


@asynccontextmanager
async def watching(events: EventLog, clock: HeldClock) -> AsyncIterator[Watcher]:
    await asyncio.to_thread(events.open_consumer, "check", ["alerts"])
    watcher = Watcher(QUIET, events, clock)
    task = asyncio.create_task(watcher.run())
    await until(lambda: clock.wakes or watcher.counts()["active"])
    yield watcher
    task.cancel()
    await asyncio.wait({task})


async def heard(events: EventLog, clock: HeldClock, n: int) -> None:
    """A reading comes, and the watcher has taken note of it."""
    await asyncio.to_thread(put, events, range(n, n + 1))
    pause_s = clock.monotonic_s() + PAUSE_S
    await until(lambda: pause_s in clock.wakes)
    clock.advance(PAUSE_S)
    await until(lambda: pause_s not in clock.wakes and clock.wakes)


async def test_silence_is_said_once_and_so_is_its_end(tmp_path: Path) -> None:
    clock = HeldClock(T0)
    with opened(tmp_path) as events:
        async with watching(events, clock) as watcher:
            await heard(events, clock, 1)
            clock.advance(8.9)
            assert not watcher.counts()["active"]
            clock.advance(0.1)
            await until(lambda: watcher.counts()["active"])
            clock.advance(3600)
            await asyncio.to_thread(put, events, range(2, 3))
            await until(lambda: not watcher.counts()["active"])
        await until(lambda: events.stream("alerts").waiting == 0)
        assert await asyncio.to_thread(raised, events) == [
            alert(10, 0, active=True),
            alert(3610, 0, active=False),
        ]


async def test_a_stream_that_never_spoke_is_silent_from_the_start_and_one_that_speaks_is_not(
    tmp_path: Path,
) -> None:
    clock = HeldClock(T0)
    with opened(tmp_path) as events:
        async with watching(events, clock) as watcher:
            for n in range(5):
                clock.advance(8)
                await heard(events, clock, n)
            assert watcher.counts() == {
                "stream": "speed",
                "into": "alerts",
                "active": False,
                "raised": 0,
            }
            clock.advance(10)
            await until(lambda: watcher.counts()["active"])
        async with watching(events, HeldClock(T0)) as again:
            assert again.counts()["active"], "as it was committed"


async def test_a_clock_that_is_set_raises_nothing_and_holds_nothing_back(tmp_path: Path) -> None:
    clock = HeldClock(T0)
    with opened(tmp_path) as events:
        async with watching(events, clock) as watcher:
            clock.jump(3600)
            clock.advance(9)
            clock.jump(-7200)
            await heard(events, clock, 1)
            assert watcher.counts()["raised"] == 0
            clock.advance(10)
            await until(lambda: watcher.counts()["active"])


async def test_what_was_raised_is_raised_once_over_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        clock = HeldClock(T0)
        async with watching(events, clock) as watcher:
            clock.advance(10)
            await until(lambda: watcher.counts()["active"])
    with opened(tmp_path) as events:
        clock = HeldClock(T0 + 60_000)
        async with watching(events, clock) as watcher:
            clock.advance(3600)
            await heard(events, clock, 1)
            assert watcher.counts()["raised"] == 0
        await until(lambda: events.stream("alerts").waiting == 0)
        assert await asyncio.to_thread(raised, events) == [
            alert(10, 0, active=True),
            alert(3660, 0, active=False),
        ]


async def test_a_rule_that_is_no_longer_configured_holds_nothing_back(tmp_path: Path) -> None:
    with opened(tmp_path) as events:
        async with watching(events, HeldClock(T0)):
            assert PREFIX + "quiet" in events.consumers()
        await Watching((), events, HeldClock(T0)).forget_others()
        assert events.consumers() == {"check"}
