"""NUMBERED records: numbers that grow, holes allowed (plain devices with `seq`, `one_way` frames). Repeats end here, nothing waits. No I/O.

A state knows which of the last WINDOW numbers came: 64 of them in the slot, where all before have come or never will; the full window
(an integer of 1024 bits) only while one of the older ones is open.

A number below the window, received no earlier than the last one, is no repeat: the device began to count anew (it restarted, or it once
sent a huge number). So is number 0 or 1 again after RESTART_S. What follows is stated as RESTARTED and passes; nothing silences a device.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from edgewake.cloud.sequencer.arrival import Arrival, Output, Statement, StatementKind
from edgewake.cloud.sequencer.bounds import RESTART_S, WINDOW, Bounds
from edgewake.cloud.sequencer.changes import Changes
from edgewake.cloud.sequencer.state_table import State, StateTable, seconds

_SHORT: Final = 64
_SHORT_MASK: Final = (1 << _SHORT) - 1
_MASK: Final = (1 << WINDOW) - 1
_OLDER: Final = _MASK ^ _SHORT_MASK
"""Bits of the numbers that the slot has no room for: all have come."""


class NumberedRecords:
    """The NUMBERED states of one partition."""

    def __init__(self, bounds: Bounds, table: StateTable, changes: Changes, outcomes: Counter[str]) -> None:
        self._bounds, self._table, self._changes, self._outcomes = bounds, table, changes, outcomes
        self.wide: dict[bytes, int] = {}
        """Full windows by key."""

    def open(self, key: bytes, slot: int, arrival: Arrival) -> list[Output]:
        """The first record of a state."""
        self._begin(key, slot, arrival)
        self._outcomes["passed"] += 1
        return [arrival]

    def accept(self, key: bytes, slot: int, arrival: Arrival) -> list[Output]:
        """A further record."""
        state = self._table.read(slot)
        number = arrival.placement.last
        if number == state.next and state.detail >> (_SHORT - 1) and key not in self.wide:
            detail = (state.detail << 1 | 1) & _SHORT_MASK
            self._table.write(slot, number + 1, detail, seconds(arrival.received_at), state.began_s)
        else:
            back = state.next - 1 - number
            if self._has_restarted(key, state, back, arrival):
                return self._restart(key, slot, arrival)
            if back >= WINDOW or (back >= 0 and self._window(key, state) >> back & 1):
                self._outcomes["repeat"] += 1
                return []
            self._note_number(key, slot, state, back, arrival)
        self._changes.note(key[0], arrival.offset)
        self._outcomes["passed"] += 1
        return [arrival]

    def _window(self, key: bytes, state: State) -> int:
        window = self.wide.get(key)
        return state.detail | _OLDER if window is None else window

    def _note_number(self, key: bytes, slot: int, state: State, back: int, arrival: Arrival) -> None:
        window, next_number = self._window(key, state), state.next
        if back < 0:
            window = (window << min(-back, WINDOW) | 1) & _MASK
            next_number = arrival.placement.last + 1
        else:
            window |= 1 << back
        touched_s = max(state.touched_s, seconds(arrival.received_at))
        self._table.write(slot, next_number, window & _SHORT_MASK, touched_s, state.began_s)
        self.wide.pop(key, None)
        if window & _OLDER != _OLDER:
            self.wide[key] = window
            if len(self.wide) > self._bounds.wide:
                del self.wide[next(iter(self.wide))]

    def _has_restarted(self, key: bytes, state: State, back: int, arrival: Arrival) -> bool:
        if back < 0:
            return False
        received_s = seconds(arrival.received_at)
        if back >= WINDOW:
            return received_s >= state.touched_s
        is_first = arrival.placement.last <= 1 and bool(self._window(key, state) >> back & 1)
        return is_first and back > 0 and received_s - state.began_s >= RESTART_S

    def _restart(self, key: bytes, slot: int, arrival: Arrival) -> list[Output]:
        placement = arrival.placement
        self._begin(key, slot, arrival)
        self._changes.decided(key[0], arrival.offset)
        self._outcomes["restarted"] += 1
        self._outcomes["passed"] += 1
        number = placement.last
        return [
            Statement(StatementKind.RESTARTED, arrival.device, placement.epoch, placement.stream, number, number, placement.seq),
            arrival,
        ]

    def _begin(self, key: bytes, slot: int, arrival: Arrival) -> None:
        """Numbers just below the first one may come late; what is further below would be a restart."""
        received_s = seconds(arrival.received_at)
        self.wide.pop(key, None)
        self._table.write(slot, arrival.placement.last + 1, 1, received_s, received_s)
        self._changes.note(key[0], arrival.offset)
