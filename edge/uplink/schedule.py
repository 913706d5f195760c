"""When and where the uplink may send. Pure: time is an argument.

It has a cap of its bandwidth, hours of the day, and one of several brokers.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.protocol.backoff import SETTLED_S, Backoff

DAY_MS: Final = 86_400_000
MINUTE_MS: Final = 60_000
BURST_S: Final = 1.0
"""Seconds of the cap that may go at once after a pause."""
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")


class Cap:
    """A bound of bytes a second on average; None: no bound.

    A packet goes when nothing is owed, and may then owe: it is never cut.
    """

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = float("-inf")
        """Up to when the bytes that were sent take the link at the cap's speed."""

    def spent(self, size: int, now_s: float) -> None:
        """`size` bytes went out."""
        if self._bytes_per_s is not None:
            self._free_s = max(self._free_s, now_s - BURST_S) + size / self._bytes_per_s

    def due_s(self, now_s: float) -> float | None:
        """When something may be sent again; None: now."""
        return self._free_s if self._free_s > now_s else None


@dataclass(frozen=True, slots=True)
class Hours:
    """A part of every day, UTC, by minutes: from the first to before the last.

    It goes over midnight where the last is the smaller one.
    """

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Hours:
        """`22:00-06:00`. Raises ValueError."""
        found = _HOURS.fullmatch(text)
        if found is None:
            raise ValueError(f"expected hours such as 22:00-06:00, found {text!r}")
        hour, minute, last_hour, last_minute = map(int, found.groups())
        hours = cls(60 * hour + minute, 60 * last_hour + last_minute)
        if hours.first == hours.last:
            raise ValueError(f"{text!r} begins when it ends: leave it out for the whole day")
        return hours

    def holds(self, now_ms: int) -> bool:
        """Is it this part of the day?"""
        minute = now_ms % DAY_MS // MINUTE_MS
        if self.first < self.last:
            return self.first <= minute < self.last
        return minute >= self.first or minute < self.last


def closed_lanes(hours: Mapping[Lane, Sequence[Hours]], now_ms: int) -> frozenset[Lane]:
    """Lanes that have hours, and none of them is now."""
    return frozenset(
        lane for lane, of in hours.items() if of and not any(each.holds(now_ms) for each in of)
    )


class Brokers:
    """Which address is tried when.

    The first is home: it is preferred, and gone back to from any other.
    """

    def __init__(
        self,
        count: int,
        *,
        minimum_s: float,
        maximum_s: float,
        home_after_s: float,
        rng: random.Random,
    ) -> None:
        """Each address has its own back-off, from `minimum_s` to `maximum_s`.

        Away from home, home is tried every `home_after_s`.
        """
        self._backoffs = [Backoff(rng, first_s=minimum_s, max_s=maximum_s) for _ in range(count)]
        self._until_s = [float("-inf")] * count
        self._failures = [0] * count
        """In a row, of each."""
        self._minimum_s = minimum_s
        self._home_after_s = home_after_s
        self._home_due_s: float | None = None

    def choose(self, now_s: float) -> tuple[int, float]:
        """The address to try next, and the seconds until then.

        Among those that need wait no longer than the shortest wait the one that failed least is
        chosen, then the first in order; one failure does not count, so home is tried twice before
        the next has its turn. Where all wait longer, the one whose wait is over first is chosen.
        """
        ready = [
            index
            for index, until_s in enumerate(self._until_s)
            if until_s <= now_s + self._minimum_s
        ]
        if ready:
            index = min(ready, key=lambda each: (max(1, self._failures[each]), each))
            return index, max(0.0, self._until_s[index] - now_s)
        index = min(range(len(self._until_s)), key=self._until_s.__getitem__)
        return index, self._until_s[index] - now_s

    def connected(self, index: int, now_s: float) -> None:
        """A connection to an address is open."""
        self._home_due_s = None if index == 0 else now_s + self._home_after_s

    def ended(self, index: int, now_s: float, *, lasted_s: float = 0.0) -> None:
        """It ended, or was never opened."""
        self._home_due_s = None
        self._backoffs[index].lasted(lasted_s)
        self._failures[index] = 1 + (0 if lasted_s >= SETTLED_S else self._failures[index])
        self._until_s[index] = now_s + self._backoffs[index].next_s()

    def home_is_due(self, now_s: float) -> bool:
        """Connected elsewhere: is it time to look whether home answers?"""
        return self._home_due_s is not None and now_s >= self._home_due_s

    def looked_for_home(self, now_s: float, *, answers: bool) -> None:
        """What that found. Where it answers, it is the next to be tried."""
        self._home_due_s = now_s + self._home_after_s
        if answers:
            self._until_s[0], self._failures[0] = now_s, 0
