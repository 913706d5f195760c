"""Tasks for rows that may move to another proxy.

An error of such a task ends the process, unless it is the loss of its rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from edgewake.cloud.push.leases.lease_writer import NotOwner

log = logging.getLogger("edgewake.push")

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class GuardedTasks:
    """Runs tasks of partitions. Make it in the event loop; await its `run`, or `failed`."""

    def __init__(self, on_failed: Callable[[], None] = lambda: None) -> None:
        """`on_failed`: called at the first error, and at each further one."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_failed = on_failed
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Raises what killed a task first."""

    async def run(self) -> None:
        """Until cancelled; raises what killed a task."""
        try:
            await self.failed
        finally:
            await self.cancel()

    async def cancel(self) -> None:
        """Cancel all, and wait until they have ended."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run something beside."""
        task = asyncio.create_task(self._guarded(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # A task that is cancelled before its first step never awaits its work.
        task.add_done_callback(lambda _: work.close())
        return task

    def fail(self, error: BaseException) -> None:
        """End the process with this error."""
        if not self.failed.done():
            self.failed.set_exception(error)
        self._on_failed()

    async def _guarded(self, work: Coroutine[Any, Any, None], name: str) -> None:
        try:
            await work
        except NotOwner:
            pass  # the partition's own end reports it
        except Exception as error:
            log.critical("%s: %r", name, error, extra={"event": "push.task_died"}, exc_info=error)
            self.fail(error)
