"""Turns at something that a few may use at once: no holder takes them all from the others.

    share    a holder has at most this part of what is under way or waits
    turns    of those that run at once it has all but one

So who asks much waits for itself, and another's question is next.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from edgewake.cloud.client_share import Bound
from edgewake.protocol.errors import Unavailable


class Turns:
    """For one event loop. `bound`: what is under way or waits, `at_once`: what runs."""

    def __init__(self, bound: Bound, at_once: int) -> None:
        self._bound = bound
        self._each = self.each_of(at_once)
        self._held: Counter[str] = Counter()
        self._running: dict[str, asyncio.Semaphore] = {}

    @staticmethod
    def each_of(at_once: int) -> int:
        """How many of those that run at once may be one holder's."""
        return max(1, at_once - 1)

    async def take(self, holder: str) -> Callable[[], None]:
        """Wait until it is the holder's turn; call what is returned, from any thread, at its end.

        `holder`: empty where it is the system's own question, which has no share. Raises
        Unavailable.
        """
        total = self._held.total()
        held = self._held[holder] if holder else 0
        refused = self._bound.refusal(total=total, held=held)
        if refused is not None and (holder or total >= self._bound.most):
            raise Unavailable(refused)
        self._held[holder] += 1
        own = None
        if holder:
            own = self._running.setdefault(holder, asyncio.Semaphore(self._each))
        try:
            if own is not None:
                await own.acquire()
        except BaseException:
            self._give_back(holder)
            raise
        loop = asyncio.get_running_loop()

        def over() -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._end, holder, own)

        return over

    def _end(self, holder: str, own: asyncio.Semaphore | None) -> None:
        if own is not None:
            own.release()
        self._give_back(holder)

    def _give_back(self, holder: str) -> None:
        self._held[holder] -= 1
        if self._held[holder] <= 0:
            del self._held[holder]
            self._running.pop(holder, None)
