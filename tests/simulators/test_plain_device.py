"""A simulated device ends when it is told to, whatever its broker does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.protocol.clock import SystemClock
from edgewake.simulators.outbox import Outbox
from edgewake.simulators.plain_device import Broker, PlainDevice
from tests.services import PATIENCE_S, Mosquitto, run_mosquitto


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with run_mosquitto(tmp_path / "mosquitto") as service:
        yield service


async def ends(name: str, port: int, turns: int, *, from_connected: bool = True) -> bool:
    """Let a device work for some turns of the loop, with a reading in each, and cancel it; did it
    end by that?
    """
    connected = asyncio.Event()
    device = PlainDevice(
        name,
        Broker(port=port),
        Outbox(window=4, lane_window=4, capacity=1000),
        clock=SystemClock(),
        rng=random.Random(1),
        on_change=lambda is_connected: connected.set() if is_connected else connected.clear(),
    )
    running = asyncio.create_task(device.run())
    if from_connected:
        async with asyncio.timeout(PATIENCE_S):
            await connected.wait()
    for _ in range(turns):
        device.offer(name, "s", b'{"a":1}')
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running], timeout=20)
    try:
        return running.cancelled()
    finally:
        running.cancel()


async def test_a_cancellation_at_any_moment_ends_it(broker: Mosquitto) -> None:
    """Many did not while `asyncio.wait_for` and the client could take the cancellation from it."""
    ended = [
        await asyncio.gather(*(ends(f"d-{i}-{turns}", broker.port, turns) for i in range(10)))
        for turns in range(1, 30)
    ]
    assert [turns for turns, all_ended in enumerate(ended, 1) if not all(all_ended)] == []


async def test_a_cancellation_while_it_connects_ends_it(broker: Mosquitto) -> None:
    ended = await asyncio.gather(
        *(ends(f"c-{turns}", broker.port, turns, from_connected=False) for turns in range(150))
    )
    assert [turns for turns, one in enumerate(ended) if not one] == []
