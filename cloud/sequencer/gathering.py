"""How long a turn gathers records before it commits them. No I/O.

A turn is one transaction. For one of a single record Kafka is asked seven times, for one of two
records nine times and not fourteen. So a record waits for the next one where that is likely to come
soon, and for all that come in a short time where they are many. A lone one goes at once.
"""

from __future__ import annotations

import sys
from typing import Final, NamedTuple

from edgewake.cloud.kafka.rate import Rate

SHORT_S: Final = 0.02
"""Seconds to gather where one or more come in that time. With 50 ms Kafka takes a tenth less at
1,000 records a second, and readers have them 10 to 25 ms later."""
LONG_S: Final = 0.06
"""Seconds to wait for one more record at most: by so much a viewer sees a reading later. Twenty
vehicles that send once a second, evenly spread, come 50 ms after each other: two share a turn,
and Kafka works a seventh less. Where less than one is likely to come in that time the sequencer
does not wait."""
SPAN_S: Final = 1.0
"""Seconds over which records are counted to know how many will come."""


class Wait(NamedTuple):
    """The most records to wait for, and the most seconds."""

    records: int
    seconds: float


AT_ONCE: Final = Wait(0, 0.0)
FOR_ONE: Final = Wait(1, LONG_S)
FOR_ALL: Final = Wait(sys.maxsize, SHORT_S)


class Gathering:
    """Believes that as many records will come in the next second as in the last."""

    def __init__(self) -> None:
        self._rate = Rate(SPAN_S)

    def wait(self, now_s: float) -> Wait:
        """A record has come: what it waits for."""
        self._rate.look(now_s)
        if self._rate.per_s * SHORT_S >= 1:
            return FOR_ALL
        return FOR_ONE if self._rate.per_s * LONG_S >= 1 else AT_ONCE

    def note(self, records: int) -> None:
        """Count `records` that came."""
        self._rate.note(records)
