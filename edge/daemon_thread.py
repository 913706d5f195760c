"""Blocking calls that may never return, beside the event loop.

asyncio's own threads are waited for when the loop ends: a name server that does not answer, a FIFO or a dead network disk would hold up the
stop of the agent. A thread from here is a daemon: it is forgotten when its caller is cancelled, and ends with the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(function: Callable[[], T], *, name: str) -> T:
    """Call `function` in a thread of its own; its result or exception. Cancelled: the thread goes on and nobody waits for it."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: BaseException | None) -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(value)  # type: ignore[arg-type]

    def run() -> None:
        value, error = None, None
        try:
            value = function()
        except BaseException as raised:  # handed to the caller
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await result
