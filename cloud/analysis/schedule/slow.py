"""When a slow query is looked for in a lane, and which one it is.

Pure; slow_search.py and meter.py measure.

All queries of a lane are emitted in one transaction, so one that takes long delays all. Where a
lane falls behind, ever fewer of its queries compute its next readings, to find the one that takes
most of the time. What Spark takes is measured so; what the driver takes, which makes the rows
of one query after the other, is known of the batch before. A lane that catches up is left alone,
and where all take about the same nobody is blamed: a backlog after a restart, a device that returns
and a busy machine look like this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

LONG_S: Final = 5.0
"""A batch that takes longer keeps those waiting who read its results, where it was not cut off,
too."""
OTHERS_SHARE_MAX: Final = 0.75
"""The others take less than this of the time of all: else they would gain little by its leaving,
and pay for one more Spark query."""
TIMES_MIN: Final = 4.0
"""A slow query takes at least this many times the others' average: where a lane has a few queries
that are alike, each takes a large share."""
REPEATS: Final = 2
"""How often all and the others are measured in turn before one is set apart, of which the least
counts: what disturbs adds to a time, and what Java has not compiled yet is slower."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What the driver took for a batch of a lane."""

    took: Mapping[str, float]
    """Query (label) → seconds of processor."""
    records: int
    """Seconds of the batch; 0: not known."""

    def of(self, labels: Iterable[str], records: int) -> float:
        """Return the seconds that some queries take for records of a kind; 0: no batch is known."""
        return (
            sum(self.took.get(label, 0.0) for label in labels) * records / self.records
            if self.records
            else 0.0
        )


NOTHING: Final = Cost({}, 0)


class Behind:
    """Since when a lane has been behind without catching up. It is given the time, s."""

    def __init__(self) -> None:
        self.cost = NOTHING
        """The last batch's costs, where the lane is behind; a lane that keeps up may have read
        other data."""
        self._batch_s: float | None = None
        self._since: tuple[float, int] | None = None
        """When its unread records were fewest, s, and how many they were."""

    def begins(self, now_s: float) -> None:
        """A batch begins."""
        self._batch_s = now_s

    def ends(self, now_s: float, unread: int, *, is_cut_off: bool, cost: Cost = NOTHING) -> None:
        """Note that a batch was emitted.

        `unread`: records that came meanwhile, or were left; `is_cut_off`: had it as many as it
        might?
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
        """How long it has been so, with the batch under way: 0 where it keeps up or catches up."""
        begun = [] if self._batch_s is None else [self._batch_s]
        return now_s - min(
            [*begun, *(() if self._since is None else self._since[:1])], default=now_s
        )


@dataclass(frozen=True, slots=True)
class Slow(Generic[T]):
    """A query that the others of its lane wait for."""

    query: T
    whole_s: float
    """What the readings took that were tried, in seconds of processor."""
    others_s: float
    """Seconds of processor that these readings took without the query."""


def slow_one(queries: Sequence[T], seconds: Callable[[Sequence[T]], float]) -> Slow[T] | None:
    """The slow one, found by halving: about two runs for each doubling of their number.

    None where none is.

    `seconds`: of processor that some of them take for the same readings.
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
