"""What a window that is folded beside Spark holds of one expression: figures of numbers, or the first and the last reading in an order.

Slots merge, so windows may join. They are JSON on `ew.windows`: small, and the same after a restart. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

At: TypeAlias = tuple[float, float | None, str | None]
"""A reading of an extreme: its order, and its value as a number or as a text."""
AnySlot: TypeAlias = "Slot | Ends"
Value: TypeAlias = float | At | tuple[()] | None
"""What a slot takes of one reading: of figures a number or None, of extremes a tuple, which is empty where there is nothing."""


@dataclass(slots=True)
class Slot:
    """Count, sum, least and greatest of one expression, and how far its values are from their mean."""

    count: int = 0
    sum: float = 0.0
    min: float | None = None
    max: float | None = None
    squares: float = 0.0
    """The sum of the squares of the distances from the mean."""

    @property
    def variance(self) -> float | None:
        """Of the population."""
        return self.squares / self.count if self.count else None

    def add(self, value: Value) -> None:
        """One more number; None is none."""
        if value is not None:
            assert not isinstance(value, tuple)
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
        """As JSON."""
        return [self.count, self.sum, self.min, self.max, self.squares]


@dataclass(slots=True)
class Ends:
    """The readings whose order is least and most; of equals those with the smallest and the largest value."""

    least: At | None = None
    most: At | None = None

    def add(self, value: Value) -> None:
        """One more reading; an empty tuple is none."""
        if value:
            assert isinstance(value, tuple)
            self.merge(Ends(value, value))

    def merge(self, other: AnySlot) -> None:
        """All readings of other ends of the same expression."""
        assert isinstance(other, Ends)
        self.least = min((one for one in (self.least, other.least) if one is not None), key=_rank, default=None)
        self.most = max((one for one in (self.most, other.most) if one is not None), key=_rank, default=None)

    def dump(self) -> dict[str, Any]:
        """As JSON."""
        return {"least": self.least, "most": self.most}


def _rank(one: At) -> tuple[float, float, str]:
    order, number, text = one
    return order, number or 0.0, text or ""


def slots_for(values: Iterable[Value]) -> list[AnySlot]:
    """Empty ones that take such values."""
    return [Ends() if isinstance(one, tuple) else Slot() for one in values]


def load(value: Sequence[Any] | dict[str, Any]) -> AnySlot:
    """The reverse of `dump`."""
    if isinstance(value, dict):
        return Ends(*(None if value[name] is None else tuple(value[name]) for name in ("least", "most")))
    return Slot(*value)
