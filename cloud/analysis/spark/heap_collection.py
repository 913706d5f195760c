"""When the JVM collects the garbage of its whole heap: while few wait for results.

With a heap of at most a GiB (session.py) all its threads stand still for that, 0.2 to 0.4 s,
whenever what it takes for old needs more room: twice a minute with 20,000 readings a second, every
three minutes with a hundred. A window that ends just then is told so much later. So the heap is
looked at when most windows have been told and the next do not end yet. Where it would not last
until the next look, it is collected.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from edgewake.cloud.analysis.spark import java_classes
from edgewake.protocol.clock import Clock

EVERY_MS: Final = 10_000
AT_MS: Final = 8_500
"""After each full EVERY_MS. Windows of five and of ten seconds and minutes have been told, a busy
stream's readings have been summed up (pace.SUMMARY_SETTLE_MS), and until the next end is more time
than a collection takes."""
LATE_MS: Final = 500
"""Whoever comes later than that looks the next time."""
MARGIN: Final = 1.5
"""How much more than in the last interval may become old in the next one."""


def interval_of(now_ms: int) -> int | None:
    """Number of the interval of which it is the time to look; None where it is not."""
    number, late_ms = divmod(now_ms - AT_MS, EVERY_MS)
    return number if late_ms <= LATE_MS else None


def is_due(used: int, grown: int, room: int) -> bool:
    """Would the heap not last? Bytes: `grown` of them became old in the last interval."""
    return used + int(grown * MARGIN) > room


class Garbage:
    """Of the driver."""

    def __init__(self, session: SparkSession, clock: Clock) -> None:
        self._heap: Any = java_classes.new(session, "Heap")
        self._clock = clock
        self._is_serial = bool(self._heap.isSerial())
        self._looked: int | None = None
        self._used = self._grown = 0

    def turn(self) -> None:
        """Look whether it is time."""
        number = interval_of(self._clock.now_ms())
        if not self._is_serial or number in (None, self._looked):
            return
        self._looked = number
        # The JVM has ended, which the lanes tell with their names.
        with contextlib.suppress(Py4JError):
            self._look()

    def _look(self) -> None:
        used = int(self._heap.used())
        if used >= self._used:  # else the collector was sooner
            self._grown = used - self._used
        if is_due(used, self._grown, int(self._heap.room())):
            self._heap.collect()
            used = int(self._heap.used())
        self._used = used
