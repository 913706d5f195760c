"""Decides whether a value was seen before, with a small state that is JSON. Pure.

Scalable Bloom filters (Almeida, Baquero, Preguica, Hutchison 2007) grow without end, which a state
that is stored with each batch must not. So the state is a list of parts, each for a fixed number of
values, and the oldest part is dropped. A value that comes again is also added to the newest part if
it would be forgotten too early otherwise, so when it was seen last decides when it is forgotten:

- At least the `capacity` different values that were seen last are remembered, and at most 2.25
  times as many.
- With `forget_ms` a value is remembered for that time, by the event times of the readings, if at
  most `capacity` different ones came since, and at most a quarter longer. A time that goes
  backwards forgets nothing.

A remembered value is never called new. A new value is called seen with a probability of at most
`error`, which is reached when all parts are full.

The state: a list of parts, the oldest first, each [time of its first value in ms, values, what]:
the values' hashes (bloom.py) while they are few, then a plain Bloom filter. Its bits are written as
digits of 64 (A-Z a-z 0-9 + /), the first bit the lowest of the first digit; bit i of a value is
(low 32 bits of the hash + i times the rest + (i^3 - i) / 6) mod the number of bits (enhanced double
hashing, Dillinger and Manolios 2004).
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from edgewake.protocol.sketches.bloom import hash_of

State: TypeAlias = Any
"""JSON; None before the first value. It is never changed in place."""

PARTS: Final = 4
"""The number of parts over which capacity or time is divided."""
CAPACITY: Final = 1_000
"""The default capacity, in values: 6 KB, with `forget_ms` 17 KB."""
CAPACITY_MIN: Final = 10
CAPACITY_MAX: Final = 10_000
"""The largest capacity, in values: with ERROR_MIN and `forget_ms` 220 KB, all of which
are stored again at each new value.
"""
ERROR: Final = 0.01
ERROR_MIN: Final = 1e-3
ERROR_MAX: Final = 0.5
"""The largest error probability: beyond it the answer says no more than a coin."""
FORGET_MS_MIN: Final = 1_000
FORGET_MS_MAX: Final = 366 * 86_400_000
"""A year, in ms: beyond it the capacity alone decides."""
LISTED_MAX: Final = 64
"""A part for at most this many values is always a list of hashes: so small a Bloom filter exceeds
its nominal error."""
LISTED_SHARE: Final = 8
"""A larger part is a list until it holds this share of its values, when it is as long as its
filter.
"""
_DIGITS: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_BITS_OF_DIGIT: Final = 6


@dataclass(frozen=True, slots=True)
class Seen:
    """The parameters of the memory that the module describes."""

    capacity: int = CAPACITY
    error: float = ERROR
    forget_ms: int | None = None

    def step(self, state: State, t: int, text: str) -> tuple[State, bool]:
        """Adds a value at event time `t` (ms). Returns the new state and whether it was seen."""
        parts: list[Any] = list(state or ())
        now = max(t, parts[-1][0]) if parts else t
        if self.forget_ms is not None:
            kept_ms = self.forget_ms + self._span_ms
            parts = [part for part in parts if now - part[0] < kept_ms]
        value = hash_of(text)
        holds = [self._holds(part[2], value) for part in parts]
        if any(holds[-self._young :]) and not self._is_old(parts[-1], now):
            return parts, True
        if not parts or parts[-1][1] >= self._room or self._is_old(parts[-1], now):
            parts = [*parts, [now, 0, []]][-self._parts :]
        begun, count, what = parts[-1]
        return [*parts[:-1], [begun, count + 1, self._with(what, value)]], any(holds)

    @property
    def _span_ms(self) -> int:
        """Returns how long a part accepts values, in ms of event time."""
        return 0 if self.forget_ms is None else -(-self.forget_ms // PARTS)

    def _is_old(self, part: Sequence[Any], now: int) -> bool:
        return self.forget_ms is not None and bool(now - part[0] >= self._span_ms)

    @property
    def _room(self) -> int:
        """Returns how many values a part holds."""
        return -(-self.capacity // PARTS) if self.forget_ms is None else self.capacity

    @property
    def _young(self) -> int:
        """Returns how many of the newest parts need no second copy of a value that they hold.

        Without a time at least PARTS further parts follow before such a part is dropped.
        """
        return PARTS if self.forget_ms is None else 1

    @property
    def _parts(self) -> int:
        """Returns how many parts are kept at most.

        With a time these are the part of a value, PARTS + 1 that begin within the time, and one
        because a part became full of values that came before.
        """
        return 2 * PARTS + 1 if self.forget_ms is None else PARTS + 3

    @property
    def _hashes(self) -> int:
        """Returns how many bits a value sets, so that each part has its share of the error."""
        return math.ceil(math.log2(self._parts / self.error))

    @property
    def _bits(self) -> int:
        """Returns the size of a filter in bits; when it is full, half of them are set."""
        return math.ceil(self._room * self._hashes / math.log(2))

    def _places(self, value: int) -> list[int]:
        bits, first, second = self._bits, value & 0xFFFF_FFFF, value >> 32
        return [(first + i * second + (i**3 - i) // 6) % bits for i in range(self._hashes)]

    def _holds(self, what: list[int] | str, value: int) -> bool:
        return value in what if isinstance(what, list) else _has(what, self._places(value))

    def _with(self, what: list[int] | str, value: int) -> list[int] | str:
        if isinstance(what, str):
            return _with(what, self._places(value))
        values = [*what, value]
        if self._room <= LISTED_MAX or len(values) * LISTED_SHARE <= self._room:
            return values
        digits = _DIGITS[0] * -(-self._bits // _BITS_OF_DIGIT)
        for one in values:
            digits = _with(digits, self._places(one))
        return digits


def _has(digits: str, places: Sequence[int]) -> bool:
    return all(
        _VALUES[digits[place // _BITS_OF_DIGIT]] >> place % _BITS_OF_DIGIT & 1 for place in places
    )


def _with(digits: str, places: Sequence[int]) -> str:
    for place in places:
        at = place // _BITS_OF_DIGIT
        value = _VALUES[digits[at]] | 1 << place % _BITS_OF_DIGIT
        digits = digits[:at] + _DIGITS[value] + digits[at + 1 :]
    return digits
