"""Blocking calls that may never return, beside the event loop.

asyncio's own threads are waited for when the loop ends: a name server that does not answer, a FIFO
or a dead network disk would hold up the stop of the agent. The threads here are daemons: what they
do is forgotten when its caller is cancelled, and they end with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from edgewake.edge.error_text import error_text

T = TypeVar("T")

log = logging.getLogger("edgewake.agent")


class DaemonThread:
    """A thread that does what it is given, one after the other. `with` it."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        """At most one for each caller that waits."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    async def call(self, function: Callable[[], T]) -> T:
        """Call `function` in the thread; its result or exception.

        Cancelled: the thread goes on and nobody waits for it.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def settle(value: Any, error: Exception | None) -> None:
            if result.done():
                return
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(value)

        def run() -> None:
            value: Any = None
            error: Exception | None = None
            try:
                value = function()
            except BaseException as raised:
                error = _for_a_future(raised)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(settle, value, error)

        self._calls.put(run)
        return await result

    def soon(self, function: Callable[[], None]) -> None:
        """Call `function` in the thread after all earlier calls.

        Nobody waits for it, so its errors are logged.
        """

        def run() -> None:
            try:
                function()
            except Exception:
                log.exception(
                    "a call in the thread %s failed",
                    self._thread.name,
                    extra={"event": "thread.call_failed"},
                )

        self._calls.put(run)


def _for_a_future(raised: BaseException) -> Exception:
    """Convert an error for a waiting caller.

    A future takes no StopIteration, and an exception that asks the program to end is not a call's
    answer.
    """
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    error = RuntimeError(error_text(raised))
    error.__cause__ = raised
    return error


async def in_daemon_thread(function: Callable[[], T], *, name: str) -> T:
    """Call `function` in a thread of its own."""
    with DaemonThread(name) as thread:
        return await thread.call(function)
