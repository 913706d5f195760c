"""All clients of a server: admission, heartbeats, the end of those that stalled, and the drain at the stop."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.access.client import Client
from edgewake.cloud.access.config import AccessConfig
from edgewake.cloud.access.connection import Connection
from edgewake.cloud.access.metrics import Metrics
from edgewake.cloud.access.slow_reader import Progress, is_stalled, observe
from edgewake.cloud.log.hub import Full
from edgewake.protocol.clock import Clock

WATCH_S: Final = 1.0
"""How often heartbeats and stalled clients are looked for; heartbeats are late by so much at most."""


@dataclass(eq=False)
class Seat:
    """A client with its connection and what was written to it."""

    client: Client
    connection: Connection | None
    progress: Progress
    written: int = 0
    written_at: float = 0.0
    stalled: bool = False


class Clients:
    """The seats of one server."""

    def __init__(self, config: AccessConfig, metrics: Metrics, *, clock: Clock, rng: random.Random) -> None:
        self.draining = False
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._seats: set[Seat] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._seats)

    def behind(self) -> int:
        """Clients that catch up."""
        return sum(seat.client.is_behind for seat in self._seats)

    def admit(self, *, replays: bool) -> None:
        """Is there room for one more? Raises Full."""
        if self.draining:
            raise Full("this server is about to stop")
        if len(self._seats) >= self._config.clients_max:
            raise Full(f"this server already serves {len(self._seats)} clients")
        if replays and self.behind() >= self._config.replays_max:
            raise Full(f"{self._config.replays_max} clients already catch up here")

    def sit(self, client: Client, connection: Connection | None) -> Seat:
        """Take a client in."""
        now = self._clock.monotonic_s()
        seat = Seat(client, connection, Progress(0, now), written_at=now)
        self._seats.add(seat)
        self._empty.clear()
        if connection is not None:
            connection.on_lost = client.end
        return seat

    def wrote(self, seat: Seat, size: int) -> None:
        """Note what was written."""
        seat.written += size
        seat.written_at = self._clock.monotonic_s()
        self._metrics.sent_bytes.inc(size)

    def leave(self, seat: Seat) -> None:
        """A client is gone."""
        self._seats.discard(seat)
        if not self._seats:
            self._empty.set()
        if seat.connection is not None:
            seat.connection.on_lost = None
        seat.client.close()

    def retry_ms(self) -> int:
        """A client's wait after a lost connection, different for each, so that they do not all come back at once."""
        return int(self._config.retry_ms * self._rng.uniform(0.5, 1.5))

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self._clock.sleep(WATCH_S)
            now = self._clock.monotonic_s()
            for seat in list(self._seats):
                self._watch(seat, now)

    def _watch(self, seat: Seat, now: float) -> None:
        if now - seat.written_at >= self._config.heartbeat_s:
            seat.client.beat()
        if seat.connection is None:
            return
        seat.progress = observe(seat.progress, written=seat.written, waiting=seat.connection.waiting(), now=now)
        if is_stalled(seat.progress, now=now, stall_s=self._config.stall_s):
            seat.stalled = True
            seat.connection.abort()

    async def drain(self, *, within_s: float) -> int:
        """Ask all to end at their next chunk's border and cut off who did not `within_s`; how many those were."""
        self.draining = True
        for seat in self._seats:
            seat.client.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._empty.wait()
        left = list(self._seats)
        for seat in left:
            if seat.connection is not None:
                seat.connection.abort()
        return len(left)
