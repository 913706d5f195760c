"""Decides which destination's process may send next.

Each destination has a share, and those that were slow the last time share one place together:
however many are dead, the other places are for those that answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from edgewake.protocol.clock import Clock

PLACES_MAX: Final = 3
"""Processes that send at the same time; each takes 60 MB."""
SLOW_MAX: Final = 1
"""Processes among them for all slow destinations together."""
OWN_MAX: Final = 1
"""Processes among them for one destination: its notes go one after the other."""
SLOW_S: Final = 10.0
"""An attempt that takes longer than this is a slow one; most take two seconds, one of them to start
the process."""


class Places:
    """The places of all destinations."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sending: list[str] = []
        self._slow: set[str] = set()
        """Destinations whose last attempt was slow; at most as many as there are."""
        self._changed = asyncio.Event()
        """Set when a place becomes free, and then another one."""

    def forget_others(self, destinations: Iterable[str]) -> None:
        """These are all that there are."""
        self._slow.intersection_update(destinations)

    @asynccontextmanager
    async def of(self, destination: str) -> AsyncIterator[None]:
        """A place for an attempt, when there is one."""
        while not self._has_room(destination):
            await self._changed.wait()
        self._sending.append(destination)
        began_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            is_slow = self._clock.monotonic_s() - began_s > SLOW_S
            (self._slow.add if is_slow else self._slow.discard)(destination)
            self._sending.remove(destination)
            self._changed.set()  # no await here, which a second cancel would leave
            self._changed = asyncio.Event()

    def _has_room(self, destination: str) -> bool:
        own = self._sending.count(destination)
        if len(self._sending) >= PLACES_MAX or own >= OWN_MAX:
            return False
        slow = sum(one in self._slow for one in self._sending)
        return destination not in self._slow or slow < SLOW_MAX
