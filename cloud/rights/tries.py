"""How often a client may be wrong: with a key or token, or at a login.

    OWN_MAX at once, one more each OWN_S      of one client: its keys cannot be guessed
    ALL_MAX at once, one more each ALL_S      of all clients together: what is asked elsewhere of a
                                              try (the identity provider) is not asked too often

Who is right spends nothing. A client that has used up its own waits, and no other does; where all
together have used up theirs, a client that was not wrong lately still has one try, so that no
number of others shuts it out. A client is an address, or a network (client_share). Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from edgewake.protocol.clock import Clock

OWN_MAX: Final = 10
"""Wrong tries of one client at once: an office that types, behind one address."""
OWN_S: Final = 6.0
"""Seconds after which it has one more: 14,400 a day, of 16 characters and more."""
ALL_MAX: Final = 300
ALL_S: Final = 0.1
CLIENTS_MAX: Final = 10_000
"""Clients that are remembered, some 200 bytes each; who was wrong longest ago is forgotten."""
SHORT_BYTES: Final = 8
"""Bytes by which a wrong word is known again."""


@dataclass(slots=True)
class _Left:
    """The tries that somebody has left."""

    most: int
    each_s: float
    left: float
    at_s: float
    wrong: list[bytes] = field(default_factory=list)
    """What was wrong lately, shortened: at most `most` words."""

    def fill(self, now_s: float) -> None:
        """Give what time gives."""
        self.left = min(self.most, self.left + (now_s - self.at_s) / self.each_s)
        self.at_s = now_s

    @property
    def wait_s(self) -> float:
        """Seconds until there is one."""
        return max(0.0, 1 - self.left) * self.each_s


class Tries:
    """Counts wrong tries of each client and of all, and says who has to wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all = _Left(ALL_MAX, ALL_S, ALL_MAX, clock.monotonic_s())
        self._own: OrderedDict[str, _Left] = OrderedDict()
        """Clients that were wrong lately; who was so longest ago is the first."""

    def wait_s(self, client: str, word: bytes = b"") -> float:
        """Seconds that a client has to wait before its next try; 0: none. Spends nothing.

        `word`, a digest of what is tried: the same wrong one again (a program with an old key) is
        no new guess.
        """
        own = self._own_of(client)
        if word and word[:SHORT_BYTES] in own.wrong:
            return 0.0
        if own.left < 1:
            return own.wait_s
        if self._all.left < 1 and own.left < OWN_MAX:
            return self._all.wait_s
        return 0.0

    def take(self, client: str, word: bytes = b"") -> float:
        """Spend a try of a client's: 0, or the seconds that it has to wait for one.

        A `word` that was wrong before spends nothing.
        """
        wait_s, own = self.wait_s(client, word), self._own_of(client)
        if wait_s > 0 or (word and word[:SHORT_BYTES] in own.wrong):
            return wait_s
        own.left -= 1
        self._all.left = max(0.0, self._all.left - 1)
        if word:
            own.wrong = [*own.wrong, word[:SHORT_BYTES]][-OWN_MAX:]
        self._own[client] = own
        self._own.move_to_end(client)
        self._forget(own.at_s)
        return 0.0

    def _own_of(self, client: str) -> _Left:
        now_s = self._clock.monotonic_s()
        self._all.fill(now_s)
        own = self._own.get(client) or _Left(OWN_MAX, OWN_S, OWN_MAX, now_s)
        own.fill(now_s)
        return own

    def give_back(self, client: str, word: bytes = b"") -> None:
        """It was right."""
        own = self._own.get(client)
        if own is None:
            return
        own.left = min(OWN_MAX, own.left + 1)
        self._all.left = min(ALL_MAX, self._all.left + 1)
        if word[:SHORT_BYTES] in own.wrong:
            own.wrong.remove(word[:SHORT_BYTES])
        if own.left >= OWN_MAX:
            del self._own[client]

    def _forget(self, now_s: float) -> None:
        while self._own:
            longest_ago = next(iter(self._own.values()))
            longest_ago.fill(now_s)
            if longest_ago.left < OWN_MAX and len(self._own) <= CLIENTS_MAX:
                return
            self._own.popitem(last=False)
