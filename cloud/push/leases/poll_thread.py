"""Runs a loop that blocks on Kafka in its own thread, and waits for its end in any case."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


async def run_in_thread(name: str, blocking: Callable[[], None], stop: threading.Event) -> None:
    """Run `blocking` until it returns or this is cancelled; it must end soon after `stop` is set.

    Raises what it raises.
    """
    executor = ThreadPoolExecutor(1, name)
    thread = asyncio.get_running_loop().run_in_executor(executor, blocking)
    try:
        await asyncio.shield(thread)
    finally:
        stop.set()  # the poll loop looks at it ten times a second
        await asyncio.gather(thread, return_exceptions=True)
        executor.shutdown()
