"""Ends a process that is stuck, so that the supervisor starts it again.

A client library may wait for ever although it was given a time (seen once with a transaction that was open when the only broker was
killed). Nothing is lost by ending: what was not committed is read again.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from protocol.clock import Clock

log = logging.getLogger("edgewake.watchdog")


class Watchdog:
    """Calls `end` when `beat` was not called for `limit_s`."""

    def __init__(self, clock: Clock, *, what: str, limit_s: float, end: Callable[[int], object] = os._exit) -> None:
        self._clock = clock
        self._what = what
        self._limit_s = limit_s
        self._end = end
        self._beaten_s = clock.monotonic_s()

    def beat(self) -> None:
        """Say that work goes on."""
        self._beaten_s = self._clock.monotonic_s()

    def check(self) -> bool:
        """End the process if it is stuck; True where it is not."""
        silent_s = self._clock.monotonic_s() - self._beaten_s
        if silent_s <= self._limit_s:
            return True
        log.critical("%s did nothing for %.0f s and ends", self._what, silent_s, extra={"event": "part.stuck"})
        self._end(1)
        return False

    def watch(self, stop: threading.Event) -> None:
        """Look every second in a thread of its own, until `stop`."""

        def run() -> None:
            while not stop.wait(1.0) and self.check():
                pass

        threading.Thread(target=run, name="watchdog", daemon=True).start()
