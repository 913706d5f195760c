"""Which broker the uplink is at: home, or one of the addresses that stand in for it.

The shell around `schedule.Brokers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Sequence
from typing import Final

from edgewake.edge.sources.address import connected
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.edge.uplink.schedule import Brokers
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

LOOK_TIMEOUT_S: Final = 5.0
"""For the TCP connection that shows that somebody listens at home again."""


class Route:
    """Addresses in the order of preference, the first is home. `broker` is the one to use."""

    def __init__(
        self,
        addresses: Sequence[BrokerConfig],
        config: UplinkConfig,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._addresses = addresses
        self._clock = clock
        self._brokers = Brokers(
            len(addresses),
            minimum_s=config.backoff_min_s,
            maximum_s=config.backoff_max_s,
            home_after_s=config.home_after_s,
            rng=rng,
        )
        self._index = 0
        self._began_s: float | None = None
        self._look: asyncio.Task[None] | None = None

    @property
    def broker(self) -> BrokerConfig:
        """Where to connect, or where the connection is."""
        return self._addresses[self._index]

    @property
    def is_home(self) -> bool:
        """Is that the first address?"""
        return self._index == 0

    def choose(self) -> float:
        """Choose the address to try next; seconds to wait before."""
        self._index, wait_s = self._brokers.choose(self._clock.monotonic_s())
        return wait_s

    def connected(self) -> None:
        """The connection is open."""
        self._began_s = self._clock.monotonic_s()
        self._brokers.connected(self._index, self._began_s)

    def ended(self) -> None:
        """It ended, or could not be opened."""
        now_s = self._clock.monotonic_s()
        lasted_s = 0.0 if self._began_s is None else now_s - self._began_s
        self._began_s = None
        if self._look is not None:
            self._look.cancel()
            self._look = None
        self._brokers.ended(self._index, now_s, lasted_s=lasted_s)

    def look_for_home(self, go: Callable[[], None]) -> None:
        """Check in the background whether the home broker answers, when it is time.

        Then call `go`.
        """
        if self._brokers.home_is_due(self._clock.monotonic_s()) and (
            self._look is None or self._look.done()
        ):
            self._look = asyncio.create_task(self._look_for_home(go), name="look for home")

    async def _look_for_home(self, go: Callable[[], None]) -> None:
        home, answers = self._addresses[0], False
        with contextlib.suppress(Unavailable, TimeoutError):
            async with asyncio.timeout(LOOK_TIMEOUT_S), connected(home.host, home.port):
                answers = True
        self._brokers.looked_for_home(self._clock.monotonic_s(), answers=answers)
        if answers:
            go()
