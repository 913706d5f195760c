"""Rows of `ew.attributes` at the bridge: paid for, and bounded while there is no room for them."""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
from confluent_kafka import Producer

from edgewake.cloud.bridge.bridge import DRAIN_S
from edgewake.cloud.bridge.flow.attribute_rows import ROWS_AT_ONCE
from edgewake.cloud.bridge.thingsboard.memory import Memory
from edgewake.protocol.clock import FakeClock
from tests.bridge.thingsboard.alone import away, bridge
from tests.services import PATIENCE_S

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


async def test_while_nothing_is_taken_only_the_newest_row_of_a_device_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    devices = ROWS_AT_ONCE + 100
    made = bridge(FakeClock(), away(10 * devices))
    write = mock.Mock(wraps=made._writer.write)
    monkeypatch.setattr(made._writer, "write", write)
    made.hold_back(True)
    for n in range(3 * devices):
        made.remember(f"d{n % devices}", b"%d" % n, "gate")
    assert write.call_count == 0
    assert made._rows._rows == {f"d{n}": b"%d" % (2 * devices + n) for n in range(devices)}
    made.hold_back(False)
    made.step()
    assert write.call_count == ROWS_AT_ONCE
    assert made.is_full, "what is taken afterwards is written after them"
    made.step()
    assert write.call_count == devices
    assert not made.is_full


async def test_rows_that_kafkas_client_has_no_room_for_are_bounded() -> None:
    devices, room = 300, 100
    clock = FakeClock()
    made = bridge(clock, away(room))
    for n in range(20 * devices):
        made.remember(f"d{n % devices}", b"%d" % n, "gate")
        if n % 50 == 0:
            clock.advance(0.1)
            made.step()
    assert made._writer.is_blocked
    assert len(made._writer._waiting) <= 50, "what came between two turns"
    assert len(made._rows) <= devices


async def test_rows_are_safe_before_a_bridge_has_stopped() -> None:
    """Nobody else sends a row: one that the stopped bridge's client still held was lost."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    made = bridge(FakeClock(), producer)
    for n in range(ROWS_AT_ONCE + 10):
        made.remember(f"d{n}", b"{}", "gate")
    async with asyncio.timeout(PATIENCE_S):
        await made.drain()
    assert len(producer) == 0, "Kafka has confirmed all of them"
    assert not made._rows


async def test_a_bridge_stops_in_time_where_kafka_is_away_and_says_what_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    made = bridge(clock, away(1000))
    for n in range(5):
        made.remember(f"d{n}", b"{}", "gate")
    stopping = asyncio.create_task(made.drain())
    await asyncio.sleep(0)
    assert not stopping.done(), "it waits"
    clock.advance(DRAIN_S)
    async with asyncio.timeout(PATIENCE_S):
        await stopping
    assert "with 5 records that Kafka has not confirmed" in caplog.text
