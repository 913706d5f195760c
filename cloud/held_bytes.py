"""Memory of what waits because of a pace, for all readers together, each client first. Pure.

Who conflates, or has `max_rate`, holds events until they are due; so does a slow reader that is
given the latest of each thing alone. Where there is no room for a client it takes in nothing more
before it has given what it holds, and waits in Kafka; no other client notices.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from edgewake.cloud.client_share import SHARE_DEFAULT, Bound

MIB: Final = 1024 * 1024
HELD_BYTES_OF_ALL: Final = 64 * MIB
"""Bytes of events that wait by a pace, EVENT_BYTES with each; one client has its share of it."""
EVENT_BYTES: Final = 1000
"""Memory of an event beside its data, roughly."""


class HeldBytes:
    """Who holds how much."""

    def __init__(self, share: float = SHARE_DEFAULT, most: int = HELD_BYTES_OF_ALL) -> None:
        self._bound = Bound("bytes of events that wait", most, share)
        self._of: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Bytes that are held."""
        return self._of.total()

    def account(self, client: str) -> Account:
        """What one reader of a client holds."""
        return Account(self, client)

    def has_room(self, client: str) -> bool:
        """May this client hold more?"""
        return self._bound.refusal(total=self.total, held=self._of[client]) is None

    def move(self, client: str, by: int) -> None:
        """It holds `by` bytes more, or less."""
        self._of[client] += by
        if self._of[client] <= 0:
            del self._of[client]


class Account:
    """What one reader holds of its client's share."""

    def __init__(self, all_: HeldBytes, client: str) -> None:
        self._all, self._client = all_, client

    @property
    def has_room(self) -> bool:
        """May it hold more? What it adds at once is a chunk at the most."""
        return self._all.has_room(self._client)

    def add(self, data: bytes) -> None:
        """One event more."""
        self._all.move(self._client, len(data) + EVENT_BYTES)

    def take(self, data: bytes) -> None:
        """One event less."""
        self._all.move(self._client, -len(data) - EVENT_BYTES)
