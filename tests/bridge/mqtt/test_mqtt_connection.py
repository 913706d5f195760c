"""Bytes of a broker become calls, in their order, whatever arrives together."""

from __future__ import annotations

import asyncio

import mqtt5
import pytest

from edgewake.cloud.bridge.mqtt.ack_ledger import AckLedger, Delivery
from edgewake.cloud.bridge.mqtt.mqtt_connection import Connection
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import RemoteError


class Calls:
    """A ledger fed by a connection, as the bridge feeds its own."""

    def __init__(self) -> None:
        self.ledger = AckLedger()
        self.deliveries: list[Delivery] = []
        self.connection = Connection(
            b"", on_connected=self._on_connected, on_publish=self._on_publish, clock=SystemClock()
        )

    def _on_connected(self, connack: mqtt5.ConnAckPacket) -> None:
        self.ledger.connected(session_present=connack.session_present)

    def _on_publish(self, packet: mqtt5.PublishPacket) -> None:
        self.deliveries.append(Delivery(packet.packet_id, None, None, 0, 0.0))
        self.ledger.add(self.deliveries[-1])


def publish(packet_id: int) -> bytes:
    return mqtt5.PublishPacket(
        "ew/v1/d/up/s", b"{}", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=packet_id, duplicate=True
    ).write()


async def test_packet_ids_that_arrive_with_the_connack_are_acknowledged() -> None:
    """A broker sends again right behind its CONNACK, and both come in one read."""
    calls = Calls()
    calls.connection.data_received(
        mqtt5.ConnAckPacket(session_present=True).write() + b"".join(map(publish, range(1, 21)))
    )
    assert calls.connection.connected.done()
    for _ in range(5):
        # Whatever was put off is done before the acknowledgements, as on the way to Kafka.
        await asyncio.sleep(0)
    for delivery in calls.deliveries:
        delivery.stored_at = (0, 0)
    assert calls.ledger.pubacks() == list(range(1, 21))


async def test_a_refused_connection_fails_for_all_who_wait() -> None:
    calls = Calls()
    calls.connection.data_received(
        mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode.NOT_AUTHORIZED).write()
    )
    with pytest.raises(RemoteError, match="refuses us"):
        await calls.connection.connected
    with pytest.raises(RemoteError, match="refuses us"):
        await calls.connection.subscribed


@pytest.mark.parametrize("refused", [0, 1])
async def test_a_subscription_of_a_map_that_is_refused_is_said_and_costs_no_connection(
    refused: int, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    calls.connection.data_received(mqtt5.ConnAckPacket().write())
    calls.connection.subscribe(["$share/b/ew/v1/+/up/#"], ["$share/b/zigbee2mqtt/#"])
    codes = [mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE] * 2
    codes[refused] = mqtt5.SubAckReasonCode.NOT_AUTHORIZED
    calls.connection.data_received(mqtt5.SubAckPacket(1, codes).write())
    if refused == 0:
        with pytest.raises(RemoteError, match="refuses our subscriptions"):
            calls.connection.subscribed.result()
        return
    assert calls.connection.subscribed.result() is None
    assert "refuses $share/b/zigbee2mqtt/#" in caplog.text
