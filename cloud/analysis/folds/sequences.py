"""Windows that are folded outside Spark: which ones a key has open, and which a reading changes.

Pure: no Kafka, no Spark, no clock.

Session   readings of a key, each less than `gap_ms` after the one before; it ends `gap_ms` after
          its last one. A reading that comes late,
          but not too late, may be put before, into or between sessions; where it joins two, the
          later one's row is withdrawn.
By count  `count` readings of a key in the order of the log, a new window with every `step` of them;
final when it is full.
By time   the windows of other queries, where their readings are joined with a table
          (table_join_job).

The state of a key is small (numbers, no readings) and goes to Kafka in the transaction of the
results, so it is as exact as they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from edgewake.cloud.analysis.folds import slots
from edgewake.cloud.analysis.folds.slots import AnySlot, Value, slots_for
from edgewake.cloud.queries.terms.windows import Window

STATE_BYTES_MAX: Final = 16 << 20
"""Bytes of what is written down of a key, each time that it changes. Beyond it its earliest windows
are forgotten: a reading that comes for one of them later begins another, and rows of windows that
begin before it say that they may lack readings."""

Values = Sequence[Value]
"""What the query's aggregates take of one reading."""


@dataclass(slots=True)
class Open:
    """A window that may still change."""

    start: int
    """Event time of its first reading, ms: of a session the earliest, by count the first in the
    log."""
    last: int
    """Latest event time of its readings, ms; of a window by time the last one that it takes."""
    slots: list[AnySlot]
    readings: int = 0
    number: int = 0
    """Number of a window by count among those of its key, from 0."""
    is_emitted: bool = False
    """Do readers have its row? HAVING may not have let it through."""

    def add(self, t: int, values: Values) -> None:
        """Add a reading."""
        self.readings += 1
        self.last = max(self.last, t)
        for slot, value in zip(self.slots, values, strict=True):
            slot.add(value)


@dataclass(slots=True)
class KeyState:
    """What is open of one key."""

    windows: list[Open] = field(default_factory=list)
    """Sessions and windows by time in order of time, those by count by number."""
    count: int = 0
    """Readings of the key so far; of windows by count."""
    rule: Any = None
    """What a pattern knows of the key beside its windows (patterns.py), as JSON; None: nothing."""
    written: int = 0
    """Bytes of it when it was written down last."""

    @property
    def begins_before(self) -> int:
        """A time, ms, before which all its windows begin."""
        return max((one.start for one in self.windows), default=-1) + 1


@dataclass(slots=True)
class Changed:
    """What a batch did to a key's windows."""

    windows: dict[int, Open] = field(default_factory=dict)
    """Start, or number → the window as it stands."""
    withdrawn: set[int] = field(default_factory=set)
    """Starts of sessions that no longer exist."""
    over: set[int] = field(default_factory=set)
    """The windows that take no more readings, whatever event time does."""


def add(state: KeyState, window: Window, t: int, values: Values, changed: Changed) -> None:
    """Put one reading into its windows."""
    if window.count:
        _count(state, window, t, values, changed)
    elif window.gap_ms:
        _join(state, window, t, values, changed)
    else:
        _put(state, window, t, values, changed)


def _put(state: KeyState, window: Window, t: int, values: Values, changed: Changed) -> None:
    for start, end in window.around(t):
        at = bisect_left(state.windows, start, key=lambda one: one.start)
        if at == len(state.windows) or state.windows[at].start != start:
            state.windows.insert(at, Open(start, end - 1, slots_for(values)))
        one = state.windows[at]
        one.add(t, values)
        changed.windows[start] = one


def _count(state: KeyState, window: Window, t: int, values: Values, changed: Changed) -> None:
    if state.count % window.step == 0:
        state.windows.append(Open(t, t, slots_for(values), number=state.count // window.step))
    state.count += 1
    for one in state.windows:
        one.add(t, values)
        changed.windows[one.number] = one
        if one.readings == window.count:
            changed.over.add(one.number)
    state.windows = [one for one in state.windows if one.readings < window.count]


def _join(state: KeyState, window: Window, t: int, values: Values, changed: Changed) -> None:
    found = Open(t, t, slots_for(values))
    found.add(t, values)
    # Sessions of a key are in order and apart: a device that was away for a week has ten thousand
    # of them open.
    first = bisect_right(state.windows, t - window.gap_ms, key=lambda one: one.last)
    end = bisect_left(state.windows, t + window.gap_ms, lo=first, key=lambda one: one.start)
    near = state.windows[first:end]
    for one in near:
        found.start, found.last = min(found.start, one.start), max(found.last, one.last)
        found.readings += one.readings
        for slot, other in zip(found.slots, one.slots, strict=True):
            slot.merge(other)
    state.windows[first:end] = [found]
    found.is_emitted = any(one.is_emitted for one in near if one.start == found.start)
    gone = {one.start for one in near} - {found.start}
    changed.withdrawn |= {one.start for one in near if one.is_emitted} - {found.start}
    changed.withdrawn.discard(found.start)
    for start in gone:
        changed.windows.pop(start, None)
    changed.windows[found.start] = found


def close(state: KeyState, window: Window, closed: int | None) -> bool:
    """Forget windows that take nothing any more; is anything left?"""
    if window.ends and closed is not None:
        state.windows = [one for one in state.windows if one.last + (window.gap_ms or 1) > closed]
    return bool(state.windows) or state.count > 0


def record(state: KeyState) -> tuple[bytes, int]:
    """Return what is written down, and the time, ms, before which windows were forgotten for it.

    The time is 0 where none was (STATE_BYTES_MAX).
    """
    text, forgotten = orjson.dumps(dump(state)), 0
    while len(text) > STATE_BYTES_MAX and state.windows:
        many = 1 + len(state.windows) // 8
        forgotten = max(forgotten, *(one.start + 1 for one in state.windows[:many]))
        del state.windows[:many]
        text = orjson.dumps(dump(state))
    state.written = len(text)
    return text, forgotten


def dump(state: KeyState) -> list[Any]:
    """The state as JSON values."""
    windows = [
        [
            one.start,
            one.last,
            one.readings,
            one.number,
            [slot.dump() for slot in one.slots],
            one.is_emitted,
        ]
        for one in state.windows
    ]
    return [state.count, windows, state.rule]


def load(value: Iterable[Any], written: int = 0) -> KeyState:
    """Read what `dump` wrote, in `written` bytes; ValueError or TypeError for anything else."""
    count, windows, *rule = value
    made = [_opened(*one) for one in windows]
    state = KeyState(sorted(made, key=lambda one: (one.number, one.start)), count, *rule)
    state.written = written
    return state


def _opened(
    start: int, last: int, readings: int, number: int, kept: Iterable[Any], is_emitted: bool = True
) -> Open:
    """Load a window that was written down; before HAVING existed every row was emitted."""
    return Open(start, last, [slots.load(slot) for slot in kept], readings, number, is_emitted)
