"""Runs a coroutine until it ends or the process is told to stop (SIGTERM, SIGINT).

Then it is cancelled and cleans up.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable

from edgewake.protocol.clock import SystemClock
from edgewake.protocol.heartbeat import Heartbeat


def until_stopped(main: Callable[[], Awaitable[object]]) -> bool:
    """True where `main` ended by itself, False where it was told to stop."""

    async def run() -> bool:
        task = asyncio.ensure_future(Heartbeat(SystemClock()).beside(main()))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return not task.cancelled()

    return asyncio.run(run())
