"""The slots for calls of endpoints, in all and at one host.

Who waits for a host that hangs waits in that host's own line, and takes no other host's slot.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

CALLS_MAX: Final = 256
"""Endpoints called at once."""
CALLS_PER_HOST_MAX: Final = 16
"""Endpoints called at once at one host. Push services serve many clients from one host; 16 calls of
50 ms are 320 a second."""


@dataclass(slots=True)
class _Host:
    slots: asyncio.Semaphore
    users: int = 0
    """Calls that are open or wait."""


class CallSlots:
    """`async with slots.of(host)` around a call, and around nothing else.

    Storing before and after it needs no slot.
    """

    def __init__(
        self, *, calls_max: int = CALLS_MAX, per_host_max: int = CALLS_PER_HOST_MAX
    ) -> None:
        self._all = asyncio.Semaphore(calls_max)
        self._per_host_max = per_host_max
        self._hosts: dict[str, _Host] = {}

    def __len__(self) -> int:
        return len(self._hosts)

    @asynccontextmanager
    async def of(self, host: str) -> AsyncIterator[None]:
        """Wait for a slot, first come first served, and have it."""
        own = self._hosts.setdefault(host, _Host(asyncio.Semaphore(self._per_host_max)))
        own.users += 1
        try:
            async with own.slots, self._all:
                yield
        finally:
            own.users -= 1
            if not own.users:
                del self._hosts[host]
