"""Measures what each query of a lane costs in the driver.

Spark can say nothing of this part of a batch's time (schedule/slow.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class Meter:
    """Counts for the thread of a lane's batches.

    Of what counts for a query, nothing may count for one within it.
    """

    def __init__(self, cpu_s: Callable[[], float] = lambda: 0.0) -> None:
        """`cpu_s`: seconds of processor time of the calling thread (clock.thread_cpu_s).

        Without it nothing is counted.
        """
        self._cpu_s = cpu_s
        self._took: defaultdict[str, float] = defaultdict(float)

    def of(self, label: str, made: Iterable[T]) -> Iterator[T]:
        """Go through items one after the other, and count what they cost for this query.

        What it takes to make them counts, and what is done with each.
        """
        began_s = self._cpu_s()
        yield from made
        self._took[label] += self._cpu_s() - began_s

    def run(self, label: str, do: Callable[[], None]) -> None:
        """Call it, and count its cost for this query."""
        began_s = self._cpu_s()
        do()
        self._took[label] += self._cpu_s() - began_s

    def taken(self) -> Mapping[str, float]:
        """Query (label) → seconds since the last call."""
        taken, self._took = self._took, defaultdict(float)
        return taken
