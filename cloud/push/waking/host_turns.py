"""Leases that wait for a check, each once: hosts in turn, in order of arrival within a host. Pure.

So one event that concerns a hundred thousand leases of one host delays no other host's by more than
one of them.
"""

from __future__ import annotations

from collections import deque


class HostTurns:
    """A queue of leases, fair between hosts."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[str]] = {}
        self._turns: deque[str] = deque()
        """Hosts that have something waiting; at most as many as there are leases."""
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, lease_id: str, host: str) -> None:
        """Let a lease wait, unless it does already."""
        if lease_id in self._ids:
            return
        self._ids.add(lease_id)
        waiting = self._waiting.get(host)
        if waiting is None:
            waiting = self._waiting[host] = deque()
            self._turns.append(host)
        waiting.append(lease_id)

    def discard(self, lease_id: str) -> None:
        """Let a lease wait no more."""
        self._ids.discard(lease_id)

    def pop(self) -> str | None:
        """The next one; None where nothing waits."""
        while self._turns:
            host = self._turns.popleft()
            waiting = self._waiting[host]
            lease_id = waiting.popleft()
            if waiting:
                self._turns.append(host)
            else:
                del self._waiting[host]
            if lease_id in self._ids:
                self._ids.discard(lease_id)
                return lease_id
        return None
