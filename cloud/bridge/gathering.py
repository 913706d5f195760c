"""When the bridge hands records to Kafka's client: each at once while few come, many together while many come. No I/O.

A record goes to one of the 64 partitions of `ew.up`, and each partition's records are a batch of their own, which Kafka checks, writes and
confirms. With few milliseconds between two requests a batch holds one record, and Kafka works more than all others together. Waiting costs
nothing where it saves nothing, so it waits only under load: a lone message goes at once.
"""

from __future__ import annotations

from typing import Final

GATHER_S: Final = 0.02
"""Seconds that records are gathered for under load: at 20 000 a second six in each partition's batch."""
GATHER_RATE: Final = 2_000
"""Records a second from which they are gathered: about as many as fill half of the partitions in GATHER_S."""


class Gathering:
    """Looks at the rate once in GATHER_S, and gathers in the next one where it is high."""

    def __init__(self) -> None:
        self.is_on = False
        """Do records wait for `is_due`?"""
        self._came = 0
        self._since_s = float("-inf")

    def note(self) -> None:
        """A record came."""
        self._came += 1

    def is_due(self, now_s: float) -> bool:
        """Must what was gathered be handed over now? To be asked about once a millisecond while records wait."""
        passed_s = now_s - self._since_s
        if passed_s < GATHER_S:
            return not self.is_on
        self.is_on = self._came >= GATHER_RATE * passed_s
        self._came = 0
        self._since_s = now_s
        return True
