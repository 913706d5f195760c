"""Who has a connection of a server that has few of them. Pure.

Where all are taken, a sender that has fewer than another takes the place of one of the other's
whose request is not whole yet: nothing of it was taken, so its sender loses nothing but time. So
one that opens all there are, and says nothing, shuts nobody out. A sender is an address: in a local
network all share the first half of it, so the whole of it counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Seats(Generic[K]):
    """The connections that a server has, by sender. A connection is whatever stands for it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._senders: dict[K, str] = {}
        """By connection, the oldest first."""
        self._busy: set[K] = set()

    def take(self, connection: K, sender: str) -> tuple[bool, K | None]:
        """Is there a seat for it, and the connection that has to end for it, if one has to."""
        out = None
        if len(self._senders) >= self._most:
            out = self._least_needed(sender)
            if out is None:
                return False, None
            self.leave(out)
        self._senders[connection] = sender
        return True, out

    def _least_needed(self, sender: str) -> K | None:
        held = Counter(self._senders.values())
        idle = [one for one in self._senders if one not in self._busy]
        greedy = [one for one in idle if held[self._senders[one]] > held[sender] + 1]
        return max(greedy, key=lambda one: held[self._senders[one]], default=None)

    def works(self, connection: K) -> None:
        """Its request is whole, and being taken."""
        self._busy.add(connection)

    def rests(self, connection: K) -> None:
        """It was answered."""
        self._busy.discard(connection)

    def leave(self, connection: K) -> None:
        """It is gone."""
        self._senders.pop(connection, None)
        self._busy.discard(connection)
