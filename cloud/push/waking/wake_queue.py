"""The order of wake-ups: first come first served within a host, hosts in turn. Pure.

A wake-up is in hand from when it is made until what its endpoint answered is stored. A hundred
thousand that are due at once wait here, where they cost nothing. A host that hangs has
IN_HAND_PER_HOST_MAX in hand and takes no other host's turn, however many leases name it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

IN_HAND_MAX: Final = 4096
"""Wake-ups in hand, some 5 KB of memory each at most."""
IN_HAND_PER_HOST_MAX: Final = 256
"""The most wake-ups of one host in hand: sixteen times the calls that may be open to it, so that
these never wait for Kafka, which takes the wake-ups of many in one transaction."""


class WakeQueue:
    """Lease ids whose wake-up waits to be made, and how many are in hand."""

    def __init__(
        self, *, in_hand_max: int = IN_HAND_MAX, per_host_max: int = IN_HAND_PER_HOST_MAX
    ) -> None:
        self._in_hand_max = in_hand_max
        self._per_host_max = per_host_max
        self._waiting: dict[str, deque[str]] = {}
        self._turns: deque[str] = deque()
        """Hosts that have something waiting and room for it; at most as many as there are
        leases."""
        self._in_hand: dict[str, int] = {}
        self._all = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def in_hand(self) -> int:
        """Wake-ups that were begun and have not ended."""
        return self._all

    def add(self, lease_id: str, host: str) -> None:
        """Let a lease wait for its wake-up."""
        waiting = self._waiting.get(host)
        if waiting is None:
            self._waiting[host] = waiting = deque()
            if self._in_hand.get(host, 0) < self._per_host_max:
                self._turns.append(host)
        waiting.append(lease_id)

    def start_next(self) -> tuple[str, str] | None:
        """The next lease to wake and its host; None without room. Report its `end`."""
        if self._all >= self._in_hand_max or not self._turns:
            return None
        host = self._turns.popleft()
        waiting = self._waiting[host]
        lease_id = waiting.popleft()
        self._all += 1
        self._in_hand[host] = self._in_hand.get(host, 0) + 1
        if not waiting:
            del self._waiting[host]
        elif self._in_hand[host] < self._per_host_max:
            self._turns.append(host)
        return lease_id, host

    def end(self, host: str) -> None:
        """A wake-up of a host is not in hand any more."""
        self._all -= 1
        self._in_hand[host] -= 1
        if self._in_hand[host] == self._per_host_max - 1 and host in self._waiting:
            self._turns.append(host)
        if not self._in_hand[host]:
            del self._in_hand[host]
