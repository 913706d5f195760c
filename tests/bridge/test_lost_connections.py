"""Connections to the broker that are lost while Kafka is away: nothing is produced twice, nothing
is forgotten, nothing grows.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from edgewake.protocol import topics
from tests.bridge.running import Device, World, read
from tests.services import Kafka, wait_until

MESSAGES = 1000
WINDOW = 200
IN_FLIGHT = "edgewake_bridge_inflight_messages"
CONNECTIONS = "edgewake_bridge_mqtt_connections_total"


def _has_connected_more_often_than(here: World, times: int) -> bool:
    return here.metric("b-lost", CONNECTIONS) > times


@pytest.mark.long
async def test_connections_lost_while_kafka_is_away_repeat_nothing_and_stop_nobody(
    here: World, own_kafka: Kafka
) -> None:
    """Plain readings without a number: each record too many would be counted once more, and one
    that is stuck would be missing.

    Before, each reconnection produced the whole window again and never acknowledged what came in
    the same read as the CONNACK.
    """
    bridge = here.bridge("b-lost", inflight_messages_max=WINDOW)
    device = Device(here, "lost-1", "lost")
    await device.connected()
    own_kafka.process.kill()
    try:
        for i in range(MESSAGES):
            device.publish(b'{"speed":%d}' % i, correlation=b"%d" % (1000 + i), packet_id=2 + i)
        # Who hangs up before the broker has all loses some.
        await asyncio.to_thread(
            wait_until, lambda: len(device.confirmed) >= MESSAGES, "the broker has all"
        )
        await asyncio.to_thread(
            wait_until, lambda: here.metric("b-lost", IN_FLIGHT) == WINDOW, "the window is full"
        )
        for lost in (1, 2):
            await device.close()
            assert here.broker.process.stop() == 0
            here.broker.start()
            connected = partial(_has_connected_more_often_than, here, lost)
            await asyncio.to_thread(
                wait_until, connected, f"connected and subscribed after loss {lost}"
            )
            assert here.metric("b-lost", IN_FLIGHT) == WINDOW
    finally:
        own_kafka.start()

    none_in_flight = partial(
        wait_until, lambda: here.metric("b-lost", IN_FLIGHT) == 0, "none is in flight"
    )
    await asyncio.to_thread(none_in_flight)  # which is so between two windows, too
    all_in_kafka = partial(
        wait_until,
        lambda: len(read(here.config, topics.UP, device="lost-1")) >= MESSAGES,
        "all is in Kafka",
    )
    await asyncio.to_thread(all_in_kafka)
    await asyncio.to_thread(none_in_flight)
    values = [
        one.value().rpartition(b'"speed":[')[2]
        for one in read(here.config, topics.UP, device="lost-1")
    ]
    assert sorted(values) == sorted([b"%d]}}" % i for i in range(MESSAGES)])
    assert bridge.is_running()
