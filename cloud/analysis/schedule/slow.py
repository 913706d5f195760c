"""Decides when to search a lane for a slow query, and which query it is. Pure.

supervision/slow_search.py and results/meter.py measure.

All queries of a lane are emitted in one transaction, so a slow one delays all. When a lane falls
behind, its next readings are computed by fewer and fewer of its queries, to find the one that takes
most of the time. That measures Spark's time; the driver's, which makes the rows query by query, is
known from the batch before. A lane that catches up is left alone, and where all queries take about
the same, none is blamed: so it is in a backlog after a restart, when a device returns, and on a
busy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

LONG_S: Final = 5.0
"""A batch that takes longer, s, delays those who read its results, even if it had all records."""
OTHERS_SHARE_MAX: Final = 0.75
"""The share of the whole time below which the other queries must be: otherwise they would gain
little by its leaving, and one more Spark query would have to be paid for."""
TIMES_MIN: Final = 4.0
"""How many times the others' average a slow query takes at least: where a lane has a few similar
queries, each takes a large share."""
REPEATS: Final = 2
"""How often all queries and the others are measured, in turn, before one is isolated. The least
time counts: disturbances, and code that Java has not compiled yet, only add to it."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The driver's cost of a batch of a lane."""

    took: Mapping[str, float]
    """Query (label) → seconds of processor."""
    records: int
    """Records of the batch; 0: not known."""

    def of(self, labels: Iterable[str], records: int) -> float:
        """Seconds that these queries would take for `records` like the batch's; 0: not known."""
        return (
            sum(self.took.get(label, 0.0) for label in labels) * records / self.records
            if self.records
            else 0.0
        )


NOTHING: Final = Cost({}, 0)


class Behind:
    """How long a lane has been behind without catching up. Times are passed in, s."""

    def __init__(self) -> None:
        self.cost = NOTHING
        """The last batch's cost while the lane is behind; one that keeps up may have read other
        data."""
        self._batch_s: float | None = None
        self._since: tuple[float, int] | None = None
        """When its unread records were fewest, s, and how many there were."""

    def begins(self, now_s: float) -> None:
        """Note that a batch begins."""
        self._batch_s = now_s

    def ends(self, now_s: float, unread: int, *, is_cut_off: bool, cost: Cost = NOTHING) -> None:
        """Note that a batch was emitted.

        `unread`: records that came meanwhile, or were left; `is_cut_off`: did it reach its limit?
        """
        began_s, self._batch_s = now_s if self._batch_s is None else self._batch_s, None
        self.cost = cost
        if not unread or not (is_cut_off or now_s - began_s > LONG_S):
            self._since, self.cost = None, NOTHING
        elif self._since is None:
            self._since = began_s, unread
        elif unread < self._since[1]:  # it catches up
            self._since = now_s, unread

    def seconds(self, now_s: float) -> float:
        """Seconds behind, the current batch included; 0 while it keeps up or catches up."""
        begun = [] if self._batch_s is None else [self._batch_s]
        return now_s - min(
            [*begun, *(() if self._since is None else self._since[:1])], default=now_s
        )


@dataclass(frozen=True, slots=True)
class Slow(Generic[T]):
    """A query that the others of its lane wait for."""

    query: T
    whole_s: float
    """Seconds of processor that all queries took for the readings."""
    others_s: float
    """Seconds of processor that the same readings took without the query."""


def slow_one(queries: Sequence[T], seconds: Callable[[Sequence[T]], float]) -> Slow[T] | None:
    """The slow query, or None. Found by bisection: two runs for each doubling of their number.

    `seconds` measures the processor time of some of them, for the same readings.
    """
    suspects = list(queries)
    while len(suspects) > 1:
        middle = len(suspects) // 2
        suspects = max(suspects[:middle], suspects[middle:], key=seconds)
    others = [query for query in queries if query not in suspects]
    if not others:
        return None
    measured = [(seconds(others), seconds(queries)) for _ in range(REPEATS)]
    others_s, whole_s = (min(column) for column in zip(*measured, strict=True))
    is_slow = (
        others_s < OTHERS_SHARE_MAX * whole_s
        and whole_s - others_s >= TIMES_MIN * others_s / len(others)
    )
    return Slow(suspects[0], whole_s, others_s) if is_slow else None
