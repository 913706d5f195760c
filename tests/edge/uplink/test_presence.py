"""What an agent has its broker say of it when it vanishes; what it says itself is tested with its
uplink.
"""

from __future__ import annotations

from dataclasses import replace

import mqtt5

from edgewake.edge.uplink.presence import Presence
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.ops.device import DeviceState, DeviceStatus

NOW_MS = 1_790_000_000_000
STATUS = DeviceStatus(
    device="car", state=DeviceState.ONLINE, sent_at=NOW_MS, backlog_readings=7, backlog_bytes=90
)


def test_the_will_keeps_what_is_known_and_says_nothing_of_what_will_have_changed() -> None:
    will = Presence("car", FakeClock(NOW_MS), lambda: STATUS, interval_s=30).will()
    gone = replace(
        STATUS, state=DeviceState.OFFLINE, connected_at=NOW_MS, sent_at=None,
        backlog_readings=None, backlog_bytes=None, oldest_unacked_s=None,
    )  # fmt: skip
    assert DeviceStatus.from_json(will.payload or b"") == gone
    assert b"backlog" not in (will.payload or b"")
    assert (will.topic, will.qos) == ("ew/v1/car/status", mqtt5.QoS.AT_LEAST_ONCE)


def test_where_the_broker_allows_no_more_the_will_is_sent_at_most_once() -> None:
    one = Presence("car", FakeClock(), lambda: STATUS, interval_s=30)
    one.will_qos = mqtt5.QoS.AT_MOST_ONCE
    assert one.will().qos == mqtt5.QoS.AT_MOST_ONCE


def test_with_each_connection_it_is_due_at_once() -> None:
    one = Presence("car", FakeClock(), lambda: STATUS, interval_s=30)
    one.due_s = 99.0
    one.will()
    assert one.due_s == 0
