"""Estimates how wrong each device's clock is: records in, a shift in ms out. No I/O.

`received_at - sent_at` of a record is the difference of the clocks and the way; a queue on the way
(a bridge that is away, a slow Kafka) only adds to it. So the *lowest* difference of the last
WINDOW_S to twice that is the clock's. It falls at once and rises late: a right clock does not move
because messages waited, while a clock that was set back is believed after one or two windows. A
device's first record is believed as it is. `received_at` is Kafka's clock, so a bridge whose clock
is wrong shifts nobody.

A device's clock is a state of the StateTable beside those of its lines, under a digest that no
stream can have: `next` and `detail` hold the lowest difference of the window before and of the
present one, `began` when this one began. It changes a few times in a window.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from edgewake.cloud.sequencer.order.arrival import Arrival
from edgewake.cloud.sequencer.order.bounds import Bounds
from edgewake.cloud.sequencer.order.changes import Changes
from edgewake.cloud.sequencer.order.state_table import DIGEST_BYTES, StateTable, seconds, state_key

WINDOW_S: Final = 300
"""Seconds. A broker that kept messages for a bridge is empty sooner, and then a record comes that
did not wait."""
SHIFT_MS_MIN: Final = 10_000
"""Smaller differences are taken for the way, not for a wrong clock."""
_ZERO: Final = 1 << 62
"""Stands for a difference of 0, for a slot holds no negative numbers."""


@lru_cache(maxsize=16_384)
def clock_key(device: str) -> bytes:
    """The key of a device's clock."""
    return state_key(blake2b(f"{device}\0\0clock".encode(), digest_size=DIGEST_BYTES).digest(), 0)


class DeviceClocks:
    """The clocks of one partition's devices."""

    def __init__(self, bounds: Bounds, table: StateTable, changes: Changes) -> None:
        self._bounds, self._table, self._changes = bounds, table, changes

    def shift(self, key: bytes, arrival: Arrival, sent_at: int, *, is_known: bool) -> int:
        """Milliseconds to add to the event times of a record.

        `is_known`: the clock's row has the record already, it is read again.
        """
        difference, received_s = arrival.received_at - sent_at, seconds(arrival.received_at)
        slot = self._table.find(key)
        if slot < 0:
            if not is_known and len(self._table) < self._bounds.states:
                self._write(
                    key, self._table.insert(key), arrival, difference, difference, received_s
                )
            return difference if abs(difference) > SHIFT_MS_MIN else 0
        before, present, _, began_s = self._table.read(slot)
        before, present = before - _ZERO, present - _ZERO
        if not is_known:
            if received_s - began_s >= WINDOW_S:
                before, present = present, difference
                self._write(key, slot, arrival, before, present, received_s)
            elif difference < present:
                present = difference
                self._write(key, slot, arrival, before, present, began_s)
        lowest = min(before, present)
        return lowest if abs(lowest) > SHIFT_MS_MIN else 0

    def _write(
        self, key: bytes, slot: int, arrival: Arrival, before: int, present: int, began_s: int
    ) -> None:
        self._table.write(
            slot, before + _ZERO, present + _ZERO, seconds(arrival.received_at), began_s
        )
        self._changes.note(key[0], arrival.offset)
