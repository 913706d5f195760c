"""The state of the parts as an ordinary stream."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import aiomqtt
import orjson

from edgewake.deploy.part_status import publish
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.frame import from_plain
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


class Hurried(SystemClock):
    """Leaves out the pauses, so that a cancellation meets a publish; says when the first round is out."""

    def __init__(self) -> None:
        self.began = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.began.set()
        await asyncio.sleep(0)


async def ends(tmp_path: Path, port: int, turns: int) -> bool:
    """Let it publish for some turns of the loop, and cancel it; did it end by that?"""
    clock = Hurried()
    keepers = supervisor(tmp_path, part("one"), part("two")).keepers.values()
    task = asyncio.create_task(publish(keepers, port, clock, random.Random(1)))
    async with asyncio.timeout(20):
        await clock.began.wait()
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=20)
    return task.cancelled()


async def test_a_cancellation_at_any_moment_ends_it(tmp_path: Path) -> None:
    """The MQTT client's `asyncio.wait_for` can take it: every second one did, and a Ctrl-C that met a publish waited for ever."""
    with run_mosquitto(tmp_path / "broker") as broker:
        ended = [await ends(tmp_path / str(turns), broker.port, turns) for turns in range(60)]
    assert [turns for turns, one in enumerate(ended) if not one] == []
