"""A Kafka that is there and refuses records for a while: too few replicas are in sync."""

from __future__ import annotations

import asyncio

from edgewake.protocol import topics
from tests.bridge.running import Device, World, read, sequenced, up_setting

FRAMES = 20


async def test_what_too_few_replicas_refuse_is_acknowledged_when_there_are_enough(
    here: World,
) -> None:
    here.bridge("b-insync")
    here.sequencer()
    device = Device(here, "insync-1", "insync", window=FRAMES)
    await device.send(1)
    with up_setting(here.config, "min.insync.replicas", 2):  # this Kafka has one
        sending = asyncio.create_task(device.send(FRAMES))
        async with asyncio.timeout(60):
            while len(device.waiting) < FRAMES - 1:
                await asyncio.sleep(0.01)
        done, _ = await asyncio.wait([sending], timeout=3)  # the fault: they come again and again
        assert not done
        assert len(device.acks) == 1
        assert len(read(here.config, topics.UP, device="insync-1")) == 1, "the fault happened"
    await sending
    assert await sequenced(here, "insync", "insync-1", FRAMES) == list(range(1, FRAMES + 1))
