"""Slots for the blocks of older records that are in memory while chunks are made from them. Pure.

A chunk over n partitions that are all old needs n blocks at the same time. Whoever makes one gets
room for all of them at once or waits in line, so that no two wait for each other; one that needs
more than there is room for has it alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Claim:
    """Somebody's room. `on_granted` is called when it comes later."""

    on_granted: Callable[[], None]
    has: int = 0
    wants: int = 0
    """The blocks that it waits in line for; 0: it does not wait."""


class BlockSlots:
    """Slots for `most` blocks in memory; a single claim that needs more gets them alone."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Claim] = deque()
        """At most one claim of each cohort."""
        self.reserved = 0

    def reserve(self, claim: Claim, count: int) -> bool:
        """Reserve room for `count` blocks; False: not now.

        What it had is released until it is granted all.
        """
        if claim.has >= count:
            return True
        self.release(claim)
        if not self._waiting and self._fits(count):
            self._grant(claim, count)
            return True
        claim.wants = count
        self._waiting.append(claim)
        return False

    def release(self, claim: Claim) -> None:
        """Need no more room, and wait for none."""
        self.reserved -= claim.has
        claim.has = 0
        if claim.wants:
            claim.wants = 0
            self._waiting.remove(claim)
        while self._waiting and self._fits(self._waiting[0].wants):
            following = self._waiting.popleft()
            self._grant(following, following.wants)
            following.on_granted()

    def _fits(self, count: int) -> bool:
        return self.reserved == 0 or self.reserved + count <= self._most

    def _grant(self, claim: Claim, count: int) -> None:
        claim.has, claim.wants = count, 0
        self.reserved += count
