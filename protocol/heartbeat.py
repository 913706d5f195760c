"""A process' heartbeat: its main loop calls `beat`, its supervisor receives it (sd_notify(3)).

The supervisor is systemd or `edgewake up`.

The main loop itself must beat, never a thread beside it: a process whose loop hangs looks alive in
every other way. A supervisor that hears nothing for its bound (WatchdogSec in a unit,
`Part.silent_s` under `edgewake up`) kills the process and starts it again; /healthz tells the same
to a container's health check by `is_alive`. Costs a datagram per second; without NOTIFY_SOCKET in
the environment only the clock is read.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Mapping
from typing import Final, TypeVar

from edgewake.protocol.clock import Clock

T = TypeVar("T")

INTERVAL_S: Final = 1.0
"""The shortest time between two signs, s; a loop may call `beat` as often as it runs."""
SILENT_S: Final = 30.0
"""Seconds without a sign after which a process counts as hung: far above any pause of a healthy
loop on a busy machine."""


class Heartbeat:
    """A process' heartbeat: create it once, first thing, which sends the first sign."""

    def __init__(self, clock: Clock, environ: Mapping[str, str] = os.environ) -> None:
        self._clock = clock
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._last_s = clock.monotonic_s()
        self._sign = b"WATCHDOG=1"
        self._send(self._sign)

    def ready(self) -> None:
        """It does its work from now on.

        Said with every sign, for one that is lost would let a start never end.
        """
        self._sign = b"READY=1\nWATCHDOG=1"
        self._send(self._sign)

    def beat(self) -> None:
        """Send a sign if one is due; the main loop calls this each time it runs."""
        now_s = self._clock.monotonic_s()
        if now_s - self._last_s >= INTERVAL_S:
            self._last_s = now_s
            self._send(self._sign)

    def allow(self, seconds: float) -> None:
        """Ask for patience with this much silence, s: one call of a library may take minutes."""
        self._send(b"WATCHDOG_USEC=%d" % (seconds * 1e6))

    def is_alive(self, silent_s: float = SILENT_S) -> bool:
        """Did the loop run within `silent_s`? Other threads may call this."""
        return self._clock.monotonic_s() - self._last_s < silent_s

    async def beside(self, work: Awaitable[T]) -> T:
        """Beat on the event loop as long as `work` runs; its result."""
        beating = asyncio.create_task(self._run(), name="heartbeat")
        try:
            return await work
        finally:
            beating.cancel()

    async def _run(self) -> None:
        while True:
            self.beat()
            await self._clock.sleep(INTERVAL_S)

    def _send(self, message: bytes) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
                sender.sendto(message, address)
        except OSError:
            # Nobody listens, or has too much to read: the next sign comes in a second.
            return
