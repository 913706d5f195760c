"""Bridges that die, freeze or share a name: nothing that the broker or we confirmed is lost, and nobody waits for the dead."""

from __future__ import annotations

import signal

import pytest

from edgewake.protocol import topics
from tests.bridge.fleet import DEVICES, Fleet, until
from tests.bridge.running import Device, World, read, sequenced, start

BEFORE, AFTER = 40, 200
"""Messages of each device before and after the fault."""
ADOPTED = 'edgewake_bridge_adopted_total{kind="session"}'


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
async def test_a_bridge_that_is_gone_for_good_delays_nobody_and_loses_nothing(here: World, fault: signal.Signals) -> None:
    """Without its session's adoption the frames would wait for the devices' own patience, the plain readings for ever: see the control."""
    run = fault.name.lower()
    gone, survivor = here.bridge(f"b-{run}-1"), f"b-{run}-2"
    here.bridge(survivor)
    here.sequencer()
    fleet = Fleet(here, run)
    await fleet.connected()
    await fleet.send(BEFORE)
    await until(lambda: here.metric(survivor, "edgewake_bridge_others") == 1, "the bridges know each other")
    gone.signal(fault)
    try:
        await fleet.send(AFTER)
        await fleet.all_arrived()
        await until(lambda: here.metric(survivor, ADOPTED) == 1, "the emptied session is ended")
        for device in fleet.agents:
            assert await sequenced(here, device.stream, device.name, fleet.sent) == list(range(1, fleet.sent + 1)), "a gap or a repeat"
    finally:
        if fault is signal.SIGSTOP:
            gone.signal(signal.SIGCONT)
    if fault is signal.SIGSTOP:
        await until(lambda: here.metric(survivor, "edgewake_bridge_others") == 1, "the thawed bridge serves again")
        await fleet.send(BEFORE)
        await fleet.all_arrived()
    assert gone.is_running() is (fault is signal.SIGSTOP)


async def test_the_control_without_adoption_loses_and_delays(here: World) -> None:
    """The survivor does not know the dead bridge's session: it is registered for another broker."""
    gone = here.bridge("b-control-1", site="elsewhere")
    here.bridge("b-control-2")
    fleet = Fleet(here, "control")
    await fleet.connected()
    await fleet.send(BEFORE)
    await fleet.all_arrived()
    gone.kill()
    await fleet.send(AFTER)
    await fleet.confirmed()
    await until(lambda: here.metric("b-control-2", "edgewake_bridge_inflight_messages") == 0, "the survivor is idle")
    missing, unacknowledged = await fleet.missing(), fleet.unacknowledged()
    assert missing + unacknowledged == DEVICES * AFTER, "half of all messages were dealt to the dead bridge"
    assert missing
    assert unacknowledged


async def test_sessions_of_bridges_that_all_died_are_emptied_by_the_first_that_comes_under_another_name(here: World) -> None:
    dead = [here.bridge("b-all-1"), here.bridge("b-all-2")]
    fleet = Fleet(here, "all")
    await fleet.connected()
    await fleet.send(1)
    await fleet.all_arrived()
    for bridge in dead:
        bridge.kill()
    await fleet.send(AFTER)
    await fleet.confirmed()
    assert await fleet.missing() == DEVICES * AFTER
    here.bridge("b-all-3")
    await fleet.all_arrived()
    await until(lambda: here.metric("b-all-3", ADOPTED) == 2, "both sessions are ended")
    rows = {one.key(): one.value() for one in read(here.config, topics.BRIDGES)}
    assert [rows[key] for key in (b"here|b-all-1", b"here|b-all-2")] == [None, None]


async def test_a_bridge_that_restarts_gets_its_session_back_and_the_others_adopt_nothing_for_ever(here: World) -> None:
    first = here.bridge("b-again-1")
    here.bridge("b-again-2")
    fleet = Fleet(here, "again")
    await fleet.connected()
    for _ in range(2):
        first.kill()
        await fleet.send(BEFORE)
        start(first)
    await fleet.send(BEFORE)
    await fleet.all_arrived()
    await until(lambda: here.metric("b-again-2", "edgewake_bridge_others") == 1, "it is heard again")


async def test_of_two_bridges_of_one_name_the_one_that_started_first_ends(here: World) -> None:
    older = here.bridge("b-twin")
    device = Device(here, "twin-1", "twin")
    await device.send(10)
    newer = here.bridge("b-twin")
    await until(lambda: not older.is_running(), "the older process ends")
    assert older.stop() == 1
    assert "another bridge has started under our name" in older.output()
    await device.send(50)
    assert newer.is_running()
    here.parts.remove(older)
