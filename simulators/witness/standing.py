"""The ledger that never ends: what was given, what was shown, and what is wrong, in bounded memory.

It imports nothing of ours. `simulators/ledger.py` keeps a whole history and judges it at the end;
this one judges as it goes and forgets what is settled: a reading when it was shown, a window when
it is final. Times of readings are ms since 1970 UTC; `now_ms` is the clock that also gave them.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

LOST_AFTER_MS: Final = 30_000
"""So long a reading may be overtaken by later ones of its device and still come."""
CLOSED_MAX: Final = 400
"""Windows that are final and still looked at, should they change: eleven minutes of six devices."""
SENTENCES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Row:
    """What a query says of one window and device."""

    revision: int
    count: int
    total: float
    low: float
    high: float


@dataclass(slots=True)
class _Device:
    taken: int = 0
    """The last number that was given; they are 1, 2, 3 …"""
    waiting: OrderedDict[int, tuple[int, float]] = field(default_factory=OrderedDict)
    """Number → time and value, in order, of those that were not shown yet."""
    overtaken: dict[int, int] = field(default_factory=dict)
    """Number → when a later one was shown before it, ms."""


@dataclass(slots=True)
class _Window:
    end_ms: int
    values: list[float] = field(default_factory=list)
    is_late: bool = False
    row: Row | None = None


class Standing:
    """See above. `window_ms`: of the query; `late_ms`: it waits so long for readings."""

    def __init__(self, *, window_ms: int, late_ms: int, begin_ms: int) -> None:
        self._window_ms = window_ms
        self._late_ms = late_ms
        self._begin_ms = begin_ms - begin_ms % window_ms + window_ms
        """Windows before it may hold what was not given here."""
        self._devices: dict[str, _Device] = {}
        self._open: dict[tuple[str, int], _Window] = {}
        self._closed: OrderedDict[tuple[str, int], Row | None] = OrderedDict()
        self._final_ms = 0
        self.taken = self.shown = self.twice = self.wrong = self.windows = self.late = 0
        self.sentences: deque[str] = deque(maxlen=SENTENCES_MAX)
        """What is wrong, the newest last."""

    # --- what happened ----------------------------------------------------------------------------

    def give(self, device: str, t_ms: int, value: float) -> int:
        """A reading is given to its device; its number."""
        mine = self._devices.setdefault(device, _Device())
        mine.taken += 1
        self.taken += 1
        mine.waiting[mine.taken] = (t_ms, value)
        start = t_ms - t_ms % self._window_ms
        if start >= self._begin_ms:
            key = (device, start)
            self._open.setdefault(key, _Window(start + self._window_ms)).values.append(value)
        return mine.taken

    def show(self, device: str, n: int, t_ms: int, value: float, *, now_ms: int) -> None:
        """A reader is shown a reading."""
        mine = self._devices.setdefault(device, _Device())
        given = mine.waiting.pop(n, None)
        if given is None:
            if 0 < n <= mine.taken:
                self.twice += 1
                self._say(f"{device} n={n} was shown again")
            else:
                self._is_wrong(f"{device} n={n} was shown and never given")
            return
        self.shown += 1
        mine.overtaken.pop(n, None)
        if given != (t_ms, value):
            self._is_wrong(f"{device} n={n} was shown as {(t_ms, value)}, given as {given}")
        if now_ms - given[0] > self._late_ms / 2:
            self._mark_late(device, given[0])
        for earlier in mine.waiting:
            if earlier > n:
                break
            mine.overtaken.setdefault(earlier, now_ms)

    def show_window(self, device: str, start_ms: int, row: Row) -> None:
        """A reader is shown a result."""
        if start_ms < self._begin_ms:
            return
        key = (device, start_ms)
        if key in self._closed:
            self._is_wrong(f"the window {start_ms} of {device} came after it was final")
            return
        window = self._open.setdefault(key, _Window(start_ms + self._window_ms))
        if window.row is not None and row.revision == window.row.revision:
            self.twice += 1
            self._say(f"revision {row.revision} of the window {start_ms} of {device} came again")
        elif window.row is not None and row.revision < window.row.revision:
            self._is_wrong(f"the window {start_ms} of {device} fell to revision {row.revision}")
        window.row = row

    def make_final(self, until_ms: int) -> None:
        """A reader is told that windows that end at or before it are final."""
        if until_ms <= self._final_ms:
            return
        self._final_ms = until_ms
        over = [key for key, window in self._open.items() if window.end_ms <= until_ms]
        for device, start in over:
            window = self._open.pop((device, start))
            self._judge(device, start, window)
            self._closed[device, start] = window.row
        while len(self._closed) > CLOSED_MAX:
            self._closed.popitem(last=False)

    # --- what it comes to -------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Readings that were given and not shown yet."""
        return sum(len(mine.waiting) for mine in self._devices.values())

    def oldest_ms(self, now_ms: int) -> int:
        """For how long the oldest of those waits."""
        firsts = [
            next(iter(mine.waiting.values()))[0] for mine in self._devices.values() if mine.waiting
        ]
        return max(0, now_ms - min(firsts)) if firsts else 0

    def lost(self, now_ms: int) -> int:
        """Readings that were overtaken long ago."""
        return sum(
            now_ms - at_ms > LOST_AFTER_MS
            for mine in self._devices.values()
            for at_ms in mine.overtaken.values()
        )

    def _judge(self, device: str, start: int, window: _Window) -> None:
        mine = self._devices.get(device)
        ends = window.end_ms
        is_on_its_way = mine is not None and any(
            start <= t_ms < ends for t_ms, _ in mine.waiting.values()
        )
        row, values = window.row, window.values
        if not values:
            self._is_wrong(f"the window {start} of {device} holds what was never given")
        elif window.is_late or is_on_its_way:
            self.late += 1
        elif row is None:
            self._is_wrong(f"the window {start} of {device} is final and never came")
        elif _is_right(row, values):
            self.windows += 1
        else:
            self._is_wrong(
                f"the window {start} of {device} says {row}, its readings {_row_of(values)}"
            )

    def _mark_late(self, device: str, t_ms: int) -> None:
        window = self._open.get((device, t_ms - t_ms % self._window_ms))
        if window is not None:
            window.is_late = True

    def _is_wrong(self, sentence: str) -> None:
        self.wrong += 1
        self._say(sentence)

    def _say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def _row_of(values: list[float]) -> tuple[int, float, float, float]:
    return len(values), math.fsum(values), min(values), max(values)


def _is_right(row: Row, values: list[float]) -> bool:
    count, total, low, high = _row_of(values)
    return (
        row.count == count
        and math.isclose(row.total, total, rel_tol=1e-9, abs_tol=1e-9)
        and (row.low, row.high) == (low, high)
    )
