"""What an agent has its broker say of it when it vanishes; what it says itself is tested with its
uplink.
"""

from __future__ import annotations

from dataclasses import replace

import mqtt5

from edgewake.edge.uplink.presence import FIELDS_SAID_TIMES, Presence
from edgewake.protocol.clock import FakeClock
from edgewake.protocol.ops.device import DeviceState, DeviceStatus

NOW_MS = 1_790_000_000_000
STATUS = DeviceStatus(
    device="car", state=DeviceState.ONLINE, sent_at=NOW_MS, backlog_readings=7, backlog_bytes=90,
    waits="s: field_type: why",
)  # fmt: skip


def test_the_will_keeps_what_is_known_and_says_nothing_of_what_will_have_changed() -> None:
    will = Presence("car", FakeClock(NOW_MS), lambda: STATUS, interval_s=30).will()
    gone = replace(
        STATUS, state=DeviceState.OFFLINE, connected_at=NOW_MS, sent_at=None,
        backlog_readings=None, backlog_bytes=None, oldest_unacked_s=None,
        waits=None,
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


def test_what_is_known_of_fields_is_said_for_a_while_and_after_a_change() -> None:
    """Names as they came, and units, were known to the agent alone."""
    known = {"home": {"DS18B20_1": {"path": "DS18B20-1"}}}
    link = Said()
    one = Presence("car", FakeClock(), lambda: STATUS, interval_s=10, fields=lambda: dict(known))
    one.will()
    for turn in range(FIELDS_SAID_TIMES + 2):
        one.say(link, 10.0 * turn, has_room=True, confirmed=False)  # type: ignore[arg-type]
    assert link.fields == [known] * FIELDS_SAID_TIMES + [None] * 2
    known["home"] = {"v": {"unit": "Cel"}}
    one.say(link, 1000, has_room=True, confirmed=False)  # type: ignore[arg-type]
    assert link.fields[-1] == known


class Said:
    """A link that remembers what statuses say of fields."""

    def __init__(self) -> None:
        self.fields: list[object] = []

    def publish(self, _topic: str, payload: bytes, *, confirmed: bool) -> None:
        assert not confirmed
        self.fields.append(DeviceStatus.from_json(payload).fields)
