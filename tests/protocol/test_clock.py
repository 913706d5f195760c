"""Time as an argument: the clock of the machine, and the one that tests move."""

from __future__ import annotations

import asyncio

from edgewake.protocol.clock import CLOCK_FLOOR_MS, FakeClock, SystemClock, sleep_or


async def test_the_machines_clocks_go_on_while_somebody_sleeps() -> None:
    clock = SystemClock()
    began_s = clock.monotonic_s()
    await clock.sleep(0.01)
    assert clock.monotonic_s() - began_s >= 0.01
    assert clock.now_ms() > CLOCK_FLOOR_MS


async def test_a_sleep_moves_both_clocks_and_a_jump_the_wall_clock_alone() -> None:
    clock = FakeClock(1000)
    await clock.sleep(1.5)
    clock.jump(-2)
    assert (clock.now_ms(), clock.monotonic_s()) == (500, 1.5)


async def test_who_waits_is_woken_by_the_event_or_by_the_time() -> None:
    event = asyncio.Event()
    async with asyncio.timeout(10):
        await sleep_or(FakeClock(), 3600, event)
        event.set()
        await sleep_or(SystemClock(), 3600, event)


async def test_a_wait_leaves_no_task_behind() -> None:
    before = asyncio.all_tasks()
    await sleep_or(FakeClock(), 1, asyncio.Event())
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
