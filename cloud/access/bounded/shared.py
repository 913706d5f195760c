"""Reads a page once for all who ask for the same at the same time.

A thousand clients that poll mostly stand at one place and wait for the same next event. The first
of them opens the streams and reads; the others wait for its page. Nobody is given a page whose
reading ended before he asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeAlias

from edgewake.cloud.access.bounded.answer import Page

SoFar: TypeAlias = Callable[[], Page | None]
"""The page as it stands, where that can be told."""
ShowSoFar: TypeAlias = Callable[[SoFar], None]


class SharedReads:
    """The pages that are being read. One event loop uses it."""

    def __init__(self) -> None:
        self._reads: dict[Hashable, _Read] = {}

    def __len__(self) -> int:
        """How many different pages are being read?"""
        return len(self._reads)

    async def page(
        self,
        key: Hashable,
        read: Callable[[ShowSoFar], Coroutine[Any, Any, Page]],
        ended: asyncio.Future[None],
        *,
        wait_s: float,
    ) -> Page | None:
        """The page of `key`, or how it stands after `wait_s` seconds, or when `ended` is done.

        `read` is given a function to tell how that is found; None: nothing is known. Raises what
        `read` raises.
        """
        found = self._reads.get(key)
        if found is None:
            found = self._reads[key] = _Read(read)
            found.task.add_done_callback(lambda _: self._forget(key, found))
        found.waiting += 1
        try:
            both: set[asyncio.Future[Any]] = {found.task, ended}
            await asyncio.wait(both, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            return found.task.result() if found.task.done() else found.so_far()
        finally:
            found.waiting -= 1
            if not found.waiting and not found.task.done():
                self._forget(key, found)
                found.task.cancel()

    def _forget(self, key: Hashable, read: _Read) -> None:
        if self._reads.get(key) is read:
            del self._reads[key]
        if read.task.done() and not read.task.cancelled():
            read.task.exception()  # somebody was told, or nobody is there to be told


class _Read:
    """One page that is being read, and how many wait for it."""

    def __init__(self, read: Callable[[ShowSoFar], Coroutine[Any, Any, Page]]) -> None:
        self.waiting = 0
        self.so_far: SoFar = _unknown
        self.task = asyncio.create_task(read(self._show), name="page")

    def _show(self, so_far: SoFar) -> None:
        self.so_far = so_far


def _unknown() -> None:
    return None
