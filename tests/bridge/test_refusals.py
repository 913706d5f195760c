"""What a flood costs a bridge beyond its device's share, where nobody waits for answers."""

from __future__ import annotations

import time

import mqtt5

from edgewake.cloud.bridge.admission.allowance import MUTED_S
from edgewake.cloud.bridge.bridge import Bridge
from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger
from edgewake.protocol import topics
from edgewake.protocol.clock import FakeClock
from tests.bridge.thingsboard.alone import away, bridge

FLOOD = 5000
TIMES = 2.0
"""What is only counted is so many times cheaper at least; it is five times."""
OWED = 1e9
DEVICE, STREAM = "spammer", "many"


async def flooded(clock: FakeClock) -> Bridge:
    """A bridge to which a device owes much, and which keeps no dead letter of it any more."""
    made = bridge(clock, away(10))
    account = made.account(DEVICE)
    account.pay_for(int(OWED), 0)
    account.letters = -OWED
    return made


def message(number: int, topic: str, **more: object) -> mqtt5.PublishPacket:
    qos = mqtt5.QoS.AT_LEAST_ONCE if "packet_id" in more else mqtt5.QoS.AT_MOST_ONCE
    return mqtt5.PublishPacket(topic, b'{"n":%d}' % number, qos=qos, **more)  # type: ignore[arg-type]


async def test_each_message_is_counted_and_most_of_them_without_a_look_inside() -> None:
    clock = FakeClock()
    one_by_one, at_once = await flooded(clock), await flooded(clock)
    packets = [message(number, topics.up(DEVICE, STREAM)) for number in range(FLOOD)]

    def cost_s(made: Bridge, pause_s: float) -> float:
        ledger, began_s = AckLedger(), time.thread_time()
        for packet in packets:
            made._on_publish(ledger, packet)
            clock.advance(pause_s)
        return time.thread_time() - began_s

    assert TIMES * cost_s(at_once, 0.0) < cost_s(one_by_one, MUTED_S)
    assert one_by_one.metrics.outcomes["counted"] == at_once.metrics.outcomes["counted"] == FLOOD


async def test_what_the_broker_awaits_is_acknowledged_and_who_awaits_an_answer_has_it() -> None:
    clock = FakeClock()
    made, ledger = await flooded(clock), AckLedger()
    topic = topics.up(DEVICE, STREAM)
    for number in (1, 2):
        made._on_publish(ledger, message(number, topic, packet_id=number))
    assert made.account(DEVICE).muted_until_s > clock.monotonic_s(), "the second one was counted"
    assert ledger.pubacks() == [1, 2]
    asked = {"response_topic": topics.ack(DEVICE), "correlation_data": b"3"}
    made._on_publish(ledger, message(3, topic, **asked))
    assert sum(made.metrics.later.values()) == 1
    made._on_publish(ledger, mqtt5.PublishPacket(topics.status(DEVICE), b"online"))
    assert made.metrics.outcomes["counted"] == 2, "that it is there is no reading"


async def test_who_owes_nothing_is_never_muted_by_a_letter_too_many() -> None:
    """It sends something wrong, more than there are dead letters for; good readings pass."""
    clock = FakeClock()
    made, ledger = bridge(clock, away(10)), AckLedger()
    account = made.account(DEVICE)
    account.letters = -OWED
    made._on_publish(ledger, mqtt5.PublishPacket(topics.up(DEVICE, STREAM), b"{wrong"))
    assert made.metrics.outcomes["counted"] == 1
    assert account.muted_until_s <= clock.monotonic_s()
