"""Bridges that are slow but alive, and a Kafka that is away for longer than every time-out on the
way: late, and nothing lost.
"""

from __future__ import annotations

import asyncio

import pytest

from edgewake.cloud.sequencer.transactions import KAFKA_S
from tests.bridge.fleet import Fleet, until
from tests.bridge.running import World, sequenced

MESSAGES = 300
"""Messages of each device while the parts are slow."""
PAUSES_S = (0.3, 1.0, 0.3, 4.0, 0.3, 1.0)
"""Pauses of the two bridges in turns. One of 4 s is taken for a death: the other adopts the
session, and the slow one comes back to it."""
GAP_S = 0.2
"""How long both run between two pauses."""
INFLIGHT_MAX = 50
"""Messages that a bridge takes while Kafka is away: fewer than are sent."""

AWAY_S = KAFKA_S + 2.0
"""How long Kafka stays away after the bridges are full: a transaction of the sequencer is over by
then."""


@pytest.mark.long
async def test_bridges_that_stand_still_in_turns_lose_nothing(here: World) -> None:
    bridges = [here.bridge("b-slow-1"), here.bridge("b-slow-2")]
    here.sequencer()
    fleet = Fleet(here, "slow")
    await fleet.connected()
    await fleet.send(10)
    await until(
        lambda: here.metric("b-slow-2", "edgewake_bridge_others") == 1,
        "the bridges know each other",
    )
    stopped = 0
    sending = asyncio.create_task(fleet.send(MESSAGES, every_s=0.03))
    try:
        for turn, pause_s in enumerate(PAUSES_S):
            slow = bridges[turn % 2]
            slow.freeze()
            stopped += 1
            await asyncio.sleep(pause_s)  # the fault itself
            slow.thaw()
            await asyncio.sleep(GAP_S)
        await sending
    finally:
        for bridge in bridges:
            bridge.thaw()
        sending.cancel()
    assert stopped == len(PAUSES_S)
    await fleet.all_arrived()
    for device in fleet.agents:
        assert await sequenced(here, device.stream, device.name, fleet.sent) == list(
            range(1, fleet.sent + 1)
        ), "a gap or a repeat"
    assert all(bridge.is_running() for bridge in bridges)


@pytest.mark.long
async def test_a_kafka_that_is_away_for_longer_than_all_time_outs_delays_and_loses_nothing(
    here: World,
) -> None:
    """Longer than a transaction, the keepalive of MQTT, and what bridges hold: so are minutes, only
    that Mosquitto then holds more.
    """
    bridges = [here.bridge(f"b-away-{i}", inflight_messages_max=INFLIGHT_MAX) for i in (1, 2)]
    here.sequencer()
    fleet = Fleet(here, "away")
    await fleet.connected()
    await fleet.send(20)
    await fleet.all_arrived()
    here.node.process.kill()
    await fleet.send(MESSAGES)
    await fleet.confirmed()
    assert fleet.unacknowledged() > 0, (
        "the control: nothing is acknowledged that Kafka does not have"
    )
    await until(
        lambda: here.metric("b-away-1", "edgewake_bridge_inflight_messages") >= INFLIGHT_MAX,
        "a bridge takes no more",
    )
    await asyncio.sleep(AWAY_S)  # the fault itself
    assert all(bridge.is_running() for bridge in bridges)
    said = '"event":"bridge.backlog_unknown"'
    await until(
        lambda: all(said in bridge.output() for bridge in bridges),
        "bridges say that they do not know how far the sequencer is",
    )
    here.node.start()
    await fleet.all_arrived()
    for device in fleet.agents:
        assert await sequenced(here, device.stream, device.name, fleet.sent) == list(
            range(1, fleet.sent + 1)
        ), "a gap or a repeat"
