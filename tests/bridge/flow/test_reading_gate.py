"""When a bridge reads from the broker and when it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from edgewake.cloud.bridge.flow.reading_gate import ReadingGate
from edgewake.cloud.bridge.metrics import BridgeMetrics
from edgewake.cloud.bridge.mqtt.ack_ledger import InFlight


@dataclass
class Room:
    """Kafka's client, as far as a gate asks it."""

    is_blocked: bool = False


class World:
    """A gate with two messages of room, and what it told the sessions."""

    def __init__(self) -> None:
        self.in_flight = InFlight(messages_max=2, bytes_max=1000)
        self.writer, self.metrics = Room(), BridgeMetrics()
        self.told: list[bool] = []
        self.gate = ReadingGate(
            self.in_flight, cast("Any", self.writer), self.metrics, self.told.append
        )


def test_it_stops_at_the_bound_and_goes_on_at_half_of_it() -> None:
    w = World()
    w.in_flight.add(10)
    w.gate.pause_where_full()
    w.in_flight.add(10)
    w.gate.pause_where_full()
    w.gate.pause_where_full()
    w.gate.resume_where_room(is_waiting=False)
    assert (w.told, w.metrics.waits["full"], w.gate.is_closed) == ([False], 1, True)
    w.in_flight.remove(10)
    w.gate.resume_where_room(is_waiting=True)
    assert w.told == [False], "rows that wait go first"
    w.gate.resume_where_room(is_waiting=False)
    assert (w.told, w.gate.is_closed) == ([False, True], False)


def test_it_stops_where_kafkas_client_has_no_room() -> None:
    w = World()
    w.writer.is_blocked = True
    w.gate.pause_where_full()
    w.gate.resume_where_room(is_waiting=False)
    assert (w.told, w.metrics.waits["queue"], w.gate.lets_rows_out) == ([False], 1, True)
    w.writer.is_blocked = False
    w.gate.resume_where_room(is_waiting=False)
    assert w.told == [False, True]


def test_while_the_sequencer_is_behind_room_alone_opens_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    w = World()
    w.gate.hold_back(True)
    w.gate.hold_back(True)
    w.gate.resume_where_room(is_waiting=False)
    assert (w.told, w.metrics.held_back, w.gate.is_closed) == ([False], True, True)
    w.gate.hold_back(False)
    w.gate.resume_where_room(is_waiting=False)
    assert (w.told, w.metrics.held_back, w.gate.is_closed) == ([False, True], False, False)
    assert [record.__dict__["event"] for record in caplog.records] == ["bridge.held_back"]


def test_a_bridge_that_drains_reads_no_more_and_writes_what_waits() -> None:
    w = World()
    w.gate.drain()
    w.in_flight.add(10)
    w.in_flight.add(10)
    w.gate.resume_where_room(is_waiting=False)
    assert (w.told, w.gate.is_closed, w.gate.lets_rows_out) == ([False], True, True)
