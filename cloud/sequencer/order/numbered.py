"""NUMBERED records: numbers that grow, holes allowed (plain devices with `seq`, `one_way` frames).

Repeats end here, nothing waits. No I/O.

A state knows which of the last WINDOW numbers came: 64 of them in the slot, where all before have
come or never will; the full window (an integer of 1024 bits) only while one of the older ones is
open.

A number below the window, received no earlier than the last one, is not a repeat: the device's
counter started again (it restarted, or it once sent a huge number). The same holds for one of the
last 64 numbers with other contents than came under it, and for number 0 or 1 after RESTART_S. What
follows is stated as RESTARTED and passes; nothing silences a device.

KEYED records have a state for each key of a request, in the place of an epoch. Their numbers are
given by bridges, so none of them starts again: whatever came is a repeat.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from edgewake.cloud.sequencer.order.arrival import Arrival, Output, Statement, StatementKind
from edgewake.cloud.sequencer.order.bounds import RESTART_S, WINDOW, Bounds
from edgewake.cloud.sequencer.order.changes import Changes
from edgewake.cloud.sequencer.order.contents import KEPT, Contents
from edgewake.cloud.sequencer.order.state_table import State, StateTable, seconds
from edgewake.protocol.frames.record import Discipline

_SHORT: Final = 64
_SHORT_MASK: Final = (1 << _SHORT) - 1
_MASK: Final = (1 << WINDOW) - 1
_OLDER: Final = _MASK ^ _SHORT_MASK
"""Bits of the numbers that the slot has no room for: all have come."""


class NumberedRecords:
    """The NUMBERED states of one partition."""

    def __init__(
        self, bounds: Bounds, table: StateTable, changes: Changes, outcomes: Counter[str]
    ) -> None:
        self._bounds, self._table, self._changes, self._outcomes = bounds, table, changes, outcomes
        self.wide: dict[bytes, int] = {}
        """Full windows by key."""
        self.contents: dict[bytes, Contents] = {}
        """What came under the last numbers, by key."""

    def forget(self, key: bytes) -> None:
        """Forget this state."""
        self.wide.pop(key, None)
        self.contents.pop(key, None)

    def open(self, key: bytes, slot: int, arrival: Arrival) -> list[Output]:
        """The first record of a state."""
        self._begin(key, slot, arrival)
        self._outcomes["passed"] += 1
        return [arrival]

    def accept(self, key: bytes, slot: int, arrival: Arrival) -> list[Output]:
        """A further record."""
        state = self._table.read(slot)
        number, content = arrival.placement.last, arrival.placement.content
        if number == state.next and state.detail >> (_SHORT - 1) and key not in self.wide:
            detail = (state.detail << 1 | 1) & _SHORT_MASK
            self._table.write(slot, number + 1, detail, seconds(arrival.received_at), state.began_s)
        else:
            back = state.next - 1 - number
            has_come = back >= 0 and (back >= WINDOW or bool(self._window(key, state) >> back & 1))
            may_restart = arrival.placement.discipline is not Discipline.KEYED
            if may_restart and (
                self._has_restarted(key, state, back, arrival)
                or (has_come and self._is_other(key, back, number, content))
            ):
                return self._restart(key, slot, arrival)
            if has_come:
                self._outcomes["repeat"] += 1
                return []
            self._note_number(key, slot, state, back, arrival)
        if content and state.next - 1 - number < KEPT:
            self._note_content(key, number, content, skipped=max(number - state.next, 0))
        self._changes.note(key[0], arrival.offset)
        self._outcomes["passed"] += 1
        return [arrival]

    def _window(self, key: bytes, state: State) -> int:
        window = self.wide.get(key)
        return state.detail | _OLDER if window is None else window

    def _note_number(
        self, key: bytes, slot: int, state: State, back: int, arrival: Arrival
    ) -> None:
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

    def _is_other(self, key: bytes, back: int, number: int, content: int) -> bool:
        contents = self.contents.get(key)
        return (
            contents is not None
            and content != 0
            and back < KEPT
            and contents.is_other(number, content)
        )

    def _note_content(self, key: bytes, number: int, content: int, *, skipped: int = 0) -> None:
        contents = self.contents.get(key)
        if contents is None:
            if len(self.contents) >= self._bounds.contents:
                del self.contents[next(iter(self.contents))]
            contents = self.contents[key] = Contents()
        contents.note(number, content, skipped=skipped)

    def _restart(self, key: bytes, slot: int, arrival: Arrival) -> list[Output]:
        placement = arrival.placement
        if (contents := self.contents.get(key)) is not None:
            contents.begin_anew()
        self._begin(key, slot, arrival)
        self._changes.decided(key[0], arrival.offset)
        self._outcomes["restarted"] += 1
        self._outcomes["passed"] += 1
        number = placement.last
        return [
            Statement(
                StatementKind.RESTARTED,
                arrival.device,
                placement.epoch,
                placement.stream,
                number,
                number,
                placement.seq,
                via=placement.via,
            ),
            arrival,
        ]

    def _begin(self, key: bytes, slot: int, arrival: Arrival) -> None:
        """Begin a line at its first number.

        Numbers just below it may come late; what is further below would be a restart.
        """
        received_s = seconds(arrival.received_at)
        self.wide.pop(key, None)
        self._table.write(slot, arrival.placement.last + 1, 1, received_s, received_s)
        if arrival.placement.content:
            self._note_content(key, arrival.placement.last, arrival.placement.content)
        self._changes.note(key[0], arrival.offset)
