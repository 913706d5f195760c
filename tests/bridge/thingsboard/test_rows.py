"""Rows of `ew.attributes` at the bridge: paid for, and bounded while there is no room for them."""

from __future__ import annotations

from edgewake.cloud.bridge.bridge import ROWS_AT_ONCE
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.protocol.clock import FakeClock
from tests.bridge.thingsboard.alone import away, bridge

LARGE = "x" * 60_000


async def test_a_row_is_paid_for_by_who_speaks_for_the_device() -> None:
    made, memory = bridge(FakeClock(), away(1000)), Memory("one", "bridge-1")
    memory.write = lambda row: made.remember(*row, memory.of(row.device).token)
    whole = made.account("gate").bytes
    memory.keep("press", "gate", "client", {"x": LARGE})
    once = made.account("gate").bytes
    assert whole - once > len(LARGE)
    memory.keep("press", "gate", "client", {"x": LARGE})
    assert made.account("gate").bytes == once, "it says nothing new"
    memory.arrived("press", "gate")
    assert once - made.account("gate").bytes > len(LARGE), "the whole row is written again"
    assert made.account("press").bytes == whole


async def test_while_nothing_is_taken_only_the_newest_row_of_a_device_waits() -> None:
    devices = ROWS_AT_ONCE + 100
    producer = away(10 * devices)
    made = bridge(FakeClock(), producer)
    made.hold_back(True)
    for n in range(3 * devices):
        made.remember(f"d{n % devices}", b"%d" % n, "gate")
    assert len(producer) == 0
    assert made._rows == {f"d{n}": b"%d" % (2 * devices + n) for n in range(devices)}
    made.hold_back(False)
    made.step()
    assert len(producer) + len(made._writer._waiting) == ROWS_AT_ONCE
    assert made.is_full, "what is taken afterwards is written after them"
    made.step()
    assert len(producer) + len(made._writer._waiting) == devices
    assert not made.is_full


async def test_rows_that_kafkas_client_has_no_room_for_are_bounded() -> None:
    devices, room = 300, 100
    clock, producer = FakeClock(), away(room)
    made = bridge(clock, producer)
    for n in range(20 * devices):
        made.remember(f"d{n % devices}", b"%d" % n, "gate")
        if n % 50 == 0:
            clock.advance(0.1)
            made.step()
    assert made._writer.is_blocked
    assert len(producer) <= room
    assert len(made._writer._waiting) <= 50, "what came between two turns"
    assert len(made._rows) <= devices
