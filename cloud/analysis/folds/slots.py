"""The partial aggregate of one expression in a window that is folded outside Spark.

A slot holds figures of numbers, the first and the last reading in an order, or a count of distinct
values.

Slots merge, so windows may join. They are JSON on `ew.windows`: small, and the same after a
restart. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeAlias

DISTINCT_MAX: Final = 1_024
"""Different values that are counted exactly, some 20 bytes each. More are estimated, with 3.1 %
standard error."""
_HASHES: Final = 2**63

At: TypeAlias = tuple[float, float | None, str | None]
"""A reading of an extreme: its order, and its value as a number or as a text."""
AnySlot: TypeAlias = "Slot | Ends | Distinct"
Value: TypeAlias = float | At | tuple[()] | frozenset[str] | None
"""What a slot takes of one reading: of figures a number or None, of extremes a tuple, of different
values a set; these are empty where there is nothing."""


@dataclass(slots=True)
class Slot:
    """Count, sum, least and greatest of an expression, and its values' spread about the mean."""

    count: int = 0
    sum: float = 0.0
    min: float | None = None
    max: float | None = None
    squares: float = 0.0
    """The sum of the squares of the distances from the mean."""

    @property
    def variance(self) -> float | None:
        """The population's variance."""
        return self.squares / self.count if self.count else None

    def add(self, value: Value) -> None:
        """Add one number; None is not counted."""
        if value is not None:
            assert not isinstance(value, tuple | frozenset)
            self.merge(Slot(1, value, value, value))

    def merge(self, other: AnySlot) -> None:
        """All values of another slot of the same expression."""
        assert isinstance(other, Slot)
        if self.count and other.count:
            apart = other.sum / other.count - self.sum / self.count
            self.squares += apart * apart * self.count * other.count / (self.count + other.count)
        self.squares += other.squares
        self.count += other.count
        self.sum += other.sum
        self.min = min((one for one in (self.min, other.min) if one is not None), default=None)
        self.max = max((one for one in (self.max, other.max) if one is not None), default=None)

    def dump(self) -> list[Any]:
        """The slot as JSON values."""
        return [self.count, self.sum, self.min, self.max, self.squares]


@dataclass(slots=True)
class Ends:
    """The readings whose order is least and most.

    Of equals those with the smallest and the largest value count.
    """

    least: At | None = None
    most: At | None = None

    def add(self, value: Value) -> None:
        """Add one reading; an empty tuple is not counted."""
        if value:
            assert isinstance(value, tuple)
            self.merge(Ends(value, value))

    def merge(self, other: AnySlot) -> None:
        """All readings of other ends of the same expression."""
        assert isinstance(other, Ends)
        self.least = min(
            (one for one in (self.least, other.least) if one is not None), key=_rank, default=None
        )
        self.most = max(
            (one for one in (self.most, other.most) if one is not None), key=_rank, default=None
        )

    def dump(self) -> dict[str, Any]:
        """The slot as JSON values."""
        return {"least": self.least, "most": self.most}


@dataclass(slots=True)
class Distinct:
    """An estimate of the number of distinct values.

    It keeps the smallest DISTINCT_MAX hashes, whose density gives the number of all of them.
    """

    smallest: list[int] = field(default_factory=list)
    """Ascending, of 63 bits."""

    @property
    def count(self) -> int:
        """Exact below DISTINCT_MAX."""
        if len(self.smallest) < DISTINCT_MAX:
            return len(self.smallest)
        return round((DISTINCT_MAX - 1) * _HASHES / self.smallest[-1])

    def add(self, value: Value) -> None:
        """The values of one more reading."""
        assert isinstance(value, frozenset)
        for text in value:
            hashed = int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1
            at = bisect_left(self.smallest, hashed)
            if at < DISTINCT_MAX and self.smallest[at : at + 1] != [hashed]:
                self.smallest.insert(at, hashed)
                del self.smallest[DISTINCT_MAX:]

    def merge(self, other: AnySlot) -> None:
        """All values of another slot of the same expression."""
        assert isinstance(other, Distinct)
        self.smallest = sorted({*self.smallest, *other.smallest})[:DISTINCT_MAX]

    def dump(self) -> dict[str, Any]:
        """The slot as JSON values."""
        return {"smallest": self.smallest}


def _rank(one: At) -> tuple[float, float, str]:
    order, number, text = one
    return order, number or 0.0, text or ""


def slots_for(values: Iterable[Value]) -> list[AnySlot]:
    """Empty slots, each of the kind that takes the value at its place."""
    return [_slot_for(one) for one in values]


def _slot_for(value: Value) -> AnySlot:
    if isinstance(value, tuple):
        return Ends()
    if isinstance(value, frozenset):
        return Distinct()
    return Slot()


def load(value: Sequence[Any] | dict[str, Any]) -> AnySlot:
    """The reverse of `dump`."""
    if isinstance(value, dict) and "smallest" in value:
        return Distinct(value["smallest"])
    if isinstance(value, dict):
        return Ends(
            *(None if value[name] is None else tuple(value[name]) for name in ("least", "most"))
        )
    return Slot(*value)
