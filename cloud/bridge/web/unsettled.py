"""Requests without a good answer though their readings had gone to Kafka's client.

They were answered 503, or their sender gave up before (`door.PATIENCE_S`). Kafka will have these
readings, and their sender sends them again. So the same request within KEPT_S is the earlier one:
it hears what became of that and is not taken again. Each is met once, for who was told that it is
taken and sends the same once more means another reading. Whether who gave up sends it again is not
known: theirs are kept for GAVE_UP_S alone, so that an equal reading of later is another one.

A bridge knows its own: at another one such a request counts again, unless it has a key.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from edgewake.cloud.bridge.mqtt.ack_ledger import Awaited
from edgewake.cloud.bridge.web.requests import Asked

KEPT_S: Final = 600.0
"""Seconds after the last 503: senders wait between half a second and some minutes."""
GAVE_UP_S: Final = 30.0
"""Seconds after the end of a connection whose sender waits for no answer: it sends the same again
at once, as most do, or means it as a new reading when it comes later."""
KEPT_OF_ONE_MAX: Final = 64
"""Requests of one sender that are kept; of more the oldest are forgotten, and count again."""
KEPT_MAX: Final = 8192
"""Requests of all; some 5 MB. Of more the oldest are forgotten."""
_TELLING: Final = ("content-", "ce-", "x-limit-")
"""How headers begin that are part of a reading: what it is, an event's id and time, a device."""


@dataclass(frozen=True)
class Given:
    """A request whose readings Kafka's client has."""

    readings: int
    whole: Awaited
    settled: asyncio.Event


@dataclass(frozen=True)
class _Kept:
    given: Given
    payer: str
    until_s: float


class Unsettled:
    """The requests of one bridge that are to come again. Seconds are of the monotonic clock."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._of_one: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(
        self, asked: Asked, body: bytes, given: Given, now_s: float, *, for_s: float = KEPT_S
    ) -> None:
        """Keep one that was answered 503, or not at all; `for_s`: GAVE_UP_S for these."""
        key = _key(asked, body)
        self._forget(key)
        self._kept[key] = _Kept(given, asked.payer, now_s + for_s)
        self._of_one[asked.payer] += 1
        self._forget_old(now_s)
        if self._of_one[asked.payer] > KEPT_OF_ONE_MAX:
            self._forget(next(at for at, one in self._kept.items() if one.payer == asked.payer))
        if len(self._kept) > KEPT_MAX:
            self._forget(next(iter(self._kept)))

    def pop(self, asked: Asked, body: bytes, now_s: float) -> Given | None:
        """The earlier one that this request repeats."""
        if not self._kept:
            return None
        self._forget_old(now_s)
        kept = self._forget(_key(asked, body))
        return None if kept is None or kept.until_s <= now_s else kept.given

    def _forget_old(self, now_s: float) -> None:
        """Those behind one that is kept for longer wait for it: `pop` looks at the time, too."""
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            if oldest.until_s > now_s:
                return
            self._forget(key)

    def _forget(self, key: bytes) -> _Kept | None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._of_one[kept.payer] -= 1
            if not self._of_one[kept.payer]:
                del self._of_one[kept.payer]
        return kept


def _key(asked: Asked, body: bytes) -> bytes:
    """Who sends what, in all that decides what becomes of it."""
    head = asked.head
    told = [one for one in sorted(head.headers.items()) if one[0].startswith(_TELLING)]
    words = [
        asked.payer,
        asked.key or "",
        head.path,
        *map(repr, [*sorted(head.query.items()), *told]),
    ]
    sum_ = blake2b("\0".join(words).encode("utf-8", "surrogateescape"), digest_size=32)
    sum_.update(body)
    return sum_.digest()
