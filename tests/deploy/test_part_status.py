"""The state of the parts as an ordinary stream."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import aiomqtt
import orjson

from deploy.part_status import publish
from protocol.clock import SystemClock
from protocol.frame import from_plain
from tests.deploy.children import part, supervisor, until
from tests.services import run_mosquitto


async def readings(port: int, count: int) -> list[bytes]:
    """The next payloads of part_status."""
    payloads: list[bytes] = []
    async with aiomqtt.Client("127.0.0.1", port) as client:
        await client.subscribe("ew/v1/supervisor/up/part_status")
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            payloads.append(message.payload)
            if len(payloads) == count:
                break
    return payloads


async def test_the_state_of_each_part_is_published_as_a_plain_reading(tmp_path: Path) -> None:
    with run_mosquitto(tmp_path / "broker") as broker:
        watched, stop, clock = supervisor(tmp_path, part("one"), part("two")), asyncio.Event(), SystemClock()
        keepers = watched.keepers.values()
        running = asyncio.create_task(watched.run(stop, alongside=[lambda: publish(keepers, broker.port, clock, random.Random(1))]))
        await until(lambda: all(keeper.settled.is_set() for keeper in keepers), "both are ready")
        _, _, *payloads = await readings(broker.port, 4)  # the broker may still hand on a round that began before both were ready
        stop.set()
        await running
    frames = [from_plain(payload, received_at=1, device="supervisor") for payload in payloads]
    assert {frame.fields["part"][0] for frame in frames} == {"one", "two"}
    one = orjson.loads(payloads[0])
    assert one["state"] == "ready"
    assert one["restarts"] == 0
    assert one["rss_mib"] > 1
    assert abs(one["t"] - clock.now_ms()) < 60_000


async def test_publishing_goes_on_after_the_broker_was_away(tmp_path: Path) -> None:
    with run_mosquitto(tmp_path / "broker") as broker:
        watched = supervisor(tmp_path, part("one"))
        task = asyncio.create_task(publish(watched.keepers.values(), broker.port, SystemClock(), random.Random(1)))
        await asyncio.wait_for(readings(broker.port, 1), 60)
        broker.process.kill()
        broker.start()
        (payload,) = await asyncio.wait_for(readings(broker.port, 1), 60)
        assert not task.done()
        assert orjson.loads(payload)["state"] == "stopped"
        task.cancel()
        await asyncio.wait([task])
