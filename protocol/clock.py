"""Time as an argument. The only module that asks the machine what time it is."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Final, Protocol

CLOCK_FLOOR_MS: Final = 1_767_225_600_000
"""2026-01-01 UTC. This program is younger, so a clock that shows an earlier time was never set."""


class Clock(Protocol):
    """The clocks that a part may use."""

    def now_ms(self) -> int:
        """Wall clock, milliseconds since 1970-01-01 UTC. May jump; never used for order."""

    def monotonic_s(self) -> float:
        """Seconds that only grow, from an arbitrary start. For time-outs and rates."""

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""


def moment(time_ms: int) -> str:
    """Formats a time, ms since 1970 UTC, for people: "2026-11-27 10:21:38 UTC".

    Pages show it in the local time of who reads it. A time that no calendar has stays a number.
    """
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"


def thread_cpu_s() -> float:
    """Seconds of processor time of the calling thread, however busy the machine is."""
    return time.thread_time()


async def sleep_or(clock: Clock, seconds: float, event: asyncio.Event) -> None:
    """Wait this long, or until the event is set."""
    waits = [asyncio.ensure_future(clock.sleep(seconds)), asyncio.ensure_future(event.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FakeClock:
    """A clock that moves when told; `sleep` advances it at once and yields to other tasks.

    For tests of ours and of who builds on the port; no part uses it.
    """

    def __init__(self, now_ms: int = 1_790_000_000_000) -> None:
        self._now_ms = float(now_ms)
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        return int(self._now_ms)

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._now_ms += seconds * 1000
        self._monotonic_s += seconds

    def jump(self, seconds: float) -> None:
        """Move the wall clock alone, as when it is set."""
        self._now_ms += seconds * 1000

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)
