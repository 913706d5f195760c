"""Tickets: secrets that stand for a principal once, for what can send neither header nor cookie.

In memory of one server; no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from edgewake.cloud.rights.principal import Principal
from edgewake.protocol.clock import Clock

TICKET_LIFE_S: Final = 30
"""Seconds in which a ticket must be used."""
OUTSTANDING_MAX: Final = 20_000
"""Tickets that are not used yet, of all; the oldest ends."""
OWN_MAX: Final = 100
"""Tickets of one holder; one more is refused."""


class TooManyTickets(Exception):
    """A holder has as many as it may."""


class Tickets:
    """The tickets of this process. `make` makes a secret."""

    def __init__(self, clock: Clock, make: Callable[[], str]) -> None:
        self._clock, self._make = clock, make
        self._waiting: dict[str, tuple[Principal, str, float]] = {}
        self._held: Counter[str] = Counter()

    def issue(self, principal: Principal, holder: str) -> str:
        """A ticket for `principal`, counted to `holder`. Raises TooManyTickets."""
        self._drop_old()
        if self._held[holder] >= OWN_MAX:
            raise TooManyTickets(
                f"{OWN_MAX} tickets of yours are not used yet: use them, or wait {TICKET_LIFE_S} s"
            )
        while len(self._waiting) >= OUTSTANDING_MAX:
            self._take(next(iter(self._waiting)))
        ticket = self._make()
        self._waiting[ticket] = (principal, holder, self._clock.monotonic_s() + TICKET_LIFE_S)
        self._held[holder] += 1
        return ticket

    def use_up(self, ticket: str) -> Principal | None:
        """Return the principal of a ticket, and make the ticket invalid."""
        self._drop_old()
        return self._take(ticket)

    def _take(self, ticket: str) -> Principal | None:
        principal, holder, _ = self._waiting.pop(ticket, (None, "", 0.0))
        if principal is not None:
            self._held[holder] -= 1
            if self._held[holder] <= 0:
                del self._held[holder]
        return principal

    def _drop_old(self) -> None:
        now_s = self._clock.monotonic_s()
        while self._waiting:
            first = next(iter(self._waiting))
            if self._waiting[first][2] >= now_s:
                return
            self._take(first)
