"""How a browser comes in: a ticket in a link, used once, opens a session that a cookie stands for.

In memory; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from edgewake.cloud.ops.login.keys import Holder
from edgewake.protocol.clock import Clock

TICKET_LIFE_S: Final = 600
"""Seconds in which a link must be opened."""
SESSION_LIFE_S: Final = 12 * 3600
OUTSTANDING_MAX: Final = 100
"""Tickets, and sessions; at the bound the oldest ends."""
OWN_MAX: Final = 20
"""One holder has this many; for one more its own oldest ends, so that nobody logs others out."""


class Passes:
    """Secrets that stand for a key's holder for `life_s` seconds."""

    def __init__(self, clock: Clock, make: Callable[[], str], life_s: float) -> None:
        self._clock = clock
        self._make = make
        self._life_s = life_s
        self._holders: dict[str, tuple[Holder, float]] = {}

    def issue(self, holder: Holder) -> str:
        """A new secret."""
        own = [secret for secret, (other, _) in self._holders.items() if other == holder]
        for secret in own[: max(0, len(own) - OWN_MAX + 1)]:
            del self._holders[secret]
        while len(self._holders) >= OUTSTANDING_MAX:
            self._holders.pop(next(iter(self._holders)))
        secret = self._make()
        self._holders[secret] = (holder, self._clock.monotonic_s() + self._life_s)
        return secret

    def find(self, secret: str) -> Holder | None:
        """The holder that the secret identifies; None where it identifies nobody."""
        holder, until_s = self._holders.get(secret, (None, 0.0))
        return holder if self._clock.monotonic_s() <= until_s else None

    def use_up(self, secret: str) -> Holder | None:
        """Return the holder that the secret identifies, and make the secret invalid."""
        holder = self.find(secret)
        self._holders.pop(secret, None)
        return holder
