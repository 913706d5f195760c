"""Which window a reading belongs to, when one is over, and how far the log may forget. Pure.

The sketches themselves are in another process and in no state: after a crash they are made again
from the readings of the windows that were open, which the log still holds. So the cursor that is
committed with a window's sketches stands before the first reading of those that are still open, and
`through` says up to where readings were counted: what is read a second time fills the sketches and
nothing else.

Windows are closed by readings alone, as those of chains are (see
`edgewake.edge.processors.operators.time_window`), so that the sketches are the same after every
crash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

LATE_RUN_MAX: Final = 10
"""Late readings in a row that are taken for stragglers. One more, and the clock was set back: the
windows start again."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What a reading led to."""

    window: int | None
    """The number of its window; None: it is in none."""
    over: tuple[int, ...]
    """Windows that are over before it is counted."""


@dataclass(frozen=True, slots=True)
class Windows:
    """A value: `place` answers with the next one."""

    size_ms: int
    grace_ms: int
    closed: int | None = None
    """Number of the last window that is over; None before the first reading."""
    head: int = 0
    """Latest event time, ms."""
    through: int = 0
    """Position up to which readings were counted."""
    late_run: int = 0
    late: int = 0
    """Readings that came too late and are in no sketch."""
    counted: int = 0
    """Readings that are in one."""
    turns: int = 0
    """The number of times that the clock was set back."""
    first: Mapping[int, int] = field(default_factory=dict)
    """Position of the first reading of each open window."""

    def place(self, position: int, t: int) -> tuple[Windows, Placed]:
        """One reading; positions grow, but for a second reading of what was not committed."""
        number = t // self.size_ms
        if position <= self.through:  # made again after a crash
            if self.closed is None or number <= self.closed:
                return self, Placed(None, ())
            return self._with(number, position), Placed(number, ())
        fresh = replace(self, through=position)
        if self.closed is None:
            return fresh._begun(number, position, t), Placed(number, ())
        if number > self.closed:
            return fresh._counted(number, position, t)
        if self.late_run < LATE_RUN_MAX:
            return replace(fresh, late_run=self.late_run + 1, late=self.late + 1), Placed(None, ())
        return replace(fresh, first={}, turns=self.turns + 1)._begun(number, position, t), Placed(
            number, tuple(sorted(self.first))
        )

    def _begun(self, number: int, position: int, t: int) -> Windows:
        closed = (t - self.grace_ms) // self.size_ms - 1
        return replace(self, closed=closed, head=t, late_run=0, counted=self.counted + 1)._with(
            number, position
        )

    def _counted(self, number: int, position: int, t: int) -> tuple[Windows, Placed]:
        assert self.closed is not None
        head = max(self.head, t)
        closed = max(self.closed, (head - self.grace_ms) // self.size_ms - 1)
        over = tuple(sorted(one for one in self.first if one <= closed))
        kept = {one: at for one, at in self.first.items() if one > closed}
        after = replace(
            self, closed=closed, head=head, late_run=0, counted=self.counted + 1, first=kept
        )
        return after._with(number, position), Placed(number, over)

    def _with(self, number: int, position: int) -> Windows:
        return (
            self if number in self.first else replace(self, first={**self.first, number: position})
        )

    def span_ms(self, window: int) -> tuple[int, int]:
        """What a window's sketches are labelled with.

        A window that comes again because the clock was set back begins one millisecond later for
        each time: in the cloud a sketch with the same label would take the place of the first one.
        """
        return window * self.size_ms + min(self.turns, self.size_ms - 1), (
            window + 1
        ) * self.size_ms

    @property
    def needed_from(self) -> int:
        """The first position that the log must still give after a crash."""
        return min(self.first.values(), default=self.through + 1)

    def encode(self) -> bytes:
        """The state to commit with a cursor before `needed_from`: open windows are read again."""
        return orjson.dumps(
            [
                self.size_ms,
                self.closed,
                self.head,
                self.through,
                self.late_run,
                self.late,
                self.counted,
                self.turns,
            ]
        )


def resumed(kept: bytes | None, *, size_ms: int, grace_ms: int) -> Windows:
    """Load a committed state.

    Start from the beginning where the windows have another size now, or it cannot be read.
    """
    try:
        found: Any = orjson.loads(kept or b"null")
        size, *rest = found
        if size == size_ms and len(rest) == 7 and all(type(one) is int for one in rest):
            return Windows(size_ms, grace_ms, *rest)
    except (orjson.JSONDecodeError, TypeError, ValueError):
        pass
    return Windows(size_ms, grace_ms)
