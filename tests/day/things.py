"""What all simulated devices have in common: numbers, a clock that may jump, firmware that may
change. Nothing of ours.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from tests.day.oracle import Oracle, Put

ARRIVAL_MS = 60_000
"""Later than it was said by so much a reading may be timed that has no time of its own: as long as
an agent may be away, whose broker keeps messages meanwhile."""


def now_ms() -> int:
    """What a right clock shows."""
    return time.time_ns() // 1_000_000


@dataclass
class Thing:
    """A device."""

    family: str
    name: str
    oracle: Oracle
    promised: bool = True
    may_double: bool = False
    n: int = 0
    offset_ms: int = 0
    """By which its clock is wrong."""
    is_odd: bool = False
    """Does its firmware write text where it wrote numbers?"""

    def say(self, *, grain_ms: int = 1, late_ms: int = 0) -> Put:
        """Its next number, written down. `grain_ms`: of its clock; `late_ms`: it has none."""
        self.n += 1
        said_ms = now_ms()
        t = said_ms + self.offset_ms
        value = f"E-{self.n}" if self.is_odd else self.n * 0.5
        t_ms = t // grain_ms * grain_ms
        put = Put(
            self.family, self.name, self.n, t_ms, value, late_ms, self.promised, said_ms,
            self.may_double,
        )  # fmt: skip
        self.oracle.put(put)
        return put


class Family(Protocol):
    """Devices that are driven together."""

    things: list[Thing]

    async def start(self) -> None:
        """Connect them."""

    async def say(self) -> None:
        """Each says a number."""

    async def restart(self) -> None:
        """Each loses its connection and what it knew of it, and comes back."""

    async def stop(self) -> None:
        """End them."""

    @property
    def waiting(self) -> int:
        """Numbers that were said and that nobody has taken yet."""
