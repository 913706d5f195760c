"""Whose endpoint is called next: first come first served within a host, hosts in turn. Pure.

A host that hangs has CALLS_PER_HOST_MAX calls open and everything else for it waits here, so it takes no other host's turn, however many
leases name it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

CALLS_MAX: Final = 256
"""Endpoints called at once."""
CALLS_PER_HOST_MAX: Final = 16
"""Endpoints called at once at one host. Push services serve many clients from one host; 16 calls of 50 ms are 320 a second."""


class WakeQueue:
    """Lease ids that wait for their call, and how many calls are open."""

    def __init__(self, *, calls_max: int = CALLS_MAX, per_host_max: int = CALLS_PER_HOST_MAX) -> None:
        self._calls_max = calls_max
        self._per_host_max = per_host_max
        self._waiting: dict[str, deque[str]] = {}
        self._turns: deque[str] = deque()
        """Hosts that have something waiting and may be called."""
        self._open: dict[str, int] = {}
        self._all = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def open_calls(self) -> int:
        """Calls that were begun and have not ended."""
        return self._all

    def add(self, lease_id: str, host: str) -> None:
        """Let a lease wait for its call."""
        waiting = self._waiting.get(host)
        if waiting is None:
            self._waiting[host] = waiting = deque()
            if self._open.get(host, 0) < self._per_host_max:
                self._turns.append(host)
        waiting.append(lease_id)

    def begin(self) -> tuple[str, str] | None:
        """The next lease to call and its host; None while nobody may be called. Report its `end`."""
        if self._all >= self._calls_max or not self._turns:
            return None
        host = self._turns.popleft()
        waiting = self._waiting[host]
        lease_id = waiting.popleft()
        self._all += 1
        self._open[host] = self._open.get(host, 0) + 1
        if not waiting:
            del self._waiting[host]
        elif self._open[host] < self._per_host_max:
            self._turns.append(host)
        return lease_id, host

    def end(self, host: str) -> None:
        """A call to a host has ended."""
        self._all -= 1
        self._open[host] -= 1
        if self._open[host] == self._per_host_max - 1 and host in self._waiting:
            self._turns.append(host)
        if not self._open[host]:
            del self._open[host]
