"""Another broker stands in for the one that is away, and home is gone back to; a cap and hours hold
against a real broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from pathlib import Path

from edgewake.edge.log.keeping.lanes import Lane
from edgewake.edge.uplink.schedule import BURST_S, Hours
from edgewake.protocol.broker import BrokerConfig
from tests.edge.helpers import reading
from tests.edge.peer import Peer
from tests.edge.running import drained, ns, running
from tests.services import PATIENCE_S, Mosquitto, free_ports


class Gate:
    """A port that leads to the broker; the way home, as long as it is open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.passed = 0

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Both ways, until one side ends."""
        self.passed += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        ways = [asyncio.create_task(_pump(reader, back)), asyncio.create_task(_pump(there, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (writer, back):
            end.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


async def test_another_broker_stands_in_and_home_is_gone_back_to(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    (port,) = free_ports(1)
    gate = Gate(mosquitto.port)
    away = BrokerConfig(port=port)
    async with (
        Peer(mosquitto.port) as peer,
        running(
            tmp_path,
            0,
            "route-1",
            mqtt=away,
            fallback=(BrokerConfig(port=mosquitto.port),),
            home_after_s=0.2,
        ) as one,
    ):
        await one.put(range(50))
        await peer.until(lambda: len(ns(peer, "route-1")) == 50)
        assert not one.uplink._route.is_home
        server = await asyncio.start_server(gate.pass_on, "127.0.0.1", port)
        async with asyncio.timeout(PATIENCE_S):
            while gate.passed < 2 or not one.uplink._route.is_home:  # looked, then connected
                await one.put(range(n := 50 + one.log.accepted_through, n + 1))
                await asyncio.sleep(0.02)
        await one.put(range(100_000, 100_050))
        await drained(one)
        assert ns(peer, "route-1")[-50:] == list(range(100_000, 100_050))
        server.close()


async def test_a_cap_holds_against_a_real_broker(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """At least: how long it takes more on a busy machine proves nothing."""
    async with (
        Peer(mosquitto.port) as peer,
        running(tmp_path, mosquitto.port, "route-2", bytes_per_s_max=20_000) as one,
    ):
        rng, began_s = random.Random(1), time.monotonic()
        await one.log.accepted(
            one.log.append_all(reading(n, text=rng.randbytes(200).hex()) for n in range(300))
        )
        await peer.until(lambda: len(ns(peer, "route-2")) == 300)
        took_s = time.monotonic() - began_s
        size = sum(len(taken.packet.payload) for taken in peer.taken[:-1])
    assert size > 30_000, "the cap had nothing to hold"
    assert took_s >= size / 20_000 - BURST_S


async def test_outside_its_hours_a_lane_waits_and_the_others_go_on(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    """Hours that are half a day away; then it has none."""
    async with Peer(mosquitto.port) as peer, running(tmp_path, mosquitto.port, "route-3") as one:
        now = one.uplink._clock.now_ms() // 60_000 % 1440
        one.uplink._hours = {Lane.BULK: (Hours((now + 600) % 1440, (now + 720) % 1440),)}
        one.events._lanes["notes"] = Lane.BULK
        one.uplink._keep_hours()
        notes = one.events.stream("notes")
        await notes.accepted(notes.append_all(reading(n) for n in range(20)))
        await one.put(range(20))
        await peer.until(lambda: len(ns(peer, "route-3")) == 20)
        assert not peer.kept.readings("route-3", "notes")
        one.uplink._hours = {}
        one.uplink._keep_hours()
        await peer.until(lambda: len(peer.kept.readings("route-3", "notes")) == 20)
