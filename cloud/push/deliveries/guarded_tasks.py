"""Tasks for rows that may move to another proxy.

An error of such a task ends the process, unless it is the loss of its rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from edgewake.cloud.push.leases.lease_writer import NotOwner

log = logging.getLogger("edgewake.push")

Spawn: TypeAlias = Callable[[Awaitable[None], str], asyncio.Task[None]]


class GuardedTasks:
    """Runs tasks of partitions. Make it in the event loop; its task `run` must run."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Until cancelled; raises what killed a task."""
        try:
            await self._failed
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def spawn(self, work: Awaitable[None], name: str) -> asyncio.Task[None]:
        """Run something beside."""
        task = asyncio.create_task(self._guarded(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Awaitable[None], name: str) -> None:
        try:
            await work
        except NotOwner:
            pass  # the partition's own end reports it
        except Exception as error:
            log.critical("%s: %r", name, error, extra={"event": "push.task_died"}, exc_info=error)
            if not self._failed.done():
                self._failed.set_exception(error)
