"""Where clients that nobody can call wait for their wake-ups: behind a NAT, at home, in a browser.

A lease whose endpoint is `relay` keeps its wake-up; the client, or a program beside it, asks for it
over a connection of its own and waits for the next one. What is kept is in the lease, so it
outlives this proxy; here are only those who wait.
"""

from __future__ import annotations

import asyncio
from typing import Final

from edgewake.cloud.client_share import Bound, Held
from edgewake.protocol.clock import Clock, sleep_or
from edgewake.protocol.errors import EdgewakeError
from edgewake.protocol.leases.lease_record import Lease

WAIT_S_MAX: Final = 50.0
"""Seconds that a client may wait for one answer: proxies between cut what is silent for a
minute."""
WAITING_MAX: Final = 10_000
"""Clients that wait at one proxy, a connection of some 20 KB each; one client has its share."""
PER_LEASE_MAX: Final = 2
"""Who waits for one lease: a client, and what it left behind when its network changed. With one
more the oldest is answered that there is nothing."""


class TooManyWaiting(EdgewakeError):
    """The bound on clients that wait is reached."""


class Relay:
    """Those who wait for a wake-up at this proxy."""

    def __init__(self, clock: Clock, client_share: float, waiting_max: int = WAITING_MAX) -> None:
        self._clock = clock
        self._held = Held(Bound("waiting clients", waiting_max, client_share))
        self._waiting: dict[str, list[asyncio.Event]] = {}

    def tell(self, lease_id: str) -> None:
        """The lease has changed: who waits for it looks at it."""
        for waiter in self._waiting.get(lease_id, ()):
            waiter.set()

    def tell_all(self) -> None:
        """Rights have changed: all who wait look at their leases."""
        for lease_id in self._waiting:
            self.tell(lease_id)

    async def wait(self, lease: Lease, seconds: float) -> bool:
        """Until it changes, or `seconds` later; False where a newer one waits in its place.

        Raises TooManyWaiting.
        """
        refused = self._held.take(lease.client)
        if refused is not None:
            raise TooManyWaiting(refused)
        mine = asyncio.Event()
        waiters = self._waiting.setdefault(lease.id, [])
        if len(waiters) >= PER_LEASE_MAX:
            waiters.pop(0).set()
        waiters.append(mine)
        try:
            await sleep_or(self._clock, seconds, mine)
            return mine in waiters
        finally:
            if mine in waiters:
                waiters.remove(mine)
            if not waiters and self._waiting.get(lease.id) is waiters:
                self._waiting.pop(lease.id, None)
            self._held.give_back(lease.client)
