"""Devices of both kinds on bridges that die: some wait for end-to-end acknowledgements, some rest
on the broker's PUBACK.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from edgewake.protocol import topics
from edgewake.protocol.frames import record
from tests.bridge.running import Device, World, read
from tests.services import wait_until

DEVICES = 3
"""Of each kind: frames acknowledged end to end, and plain readings that rest on the broker's
PUBACK."""
PATIENCE_S = 600.0
"""The devices send nothing again: what arrives came out of the dead bridge's session."""


class Fleet:
    """Devices of both kinds, that send a message each when told to."""

    def __init__(self, here: World, run: str) -> None:
        self.here = here
        self.agents = [
            Device(here, f"agent-{run}-{i}", f"fleet_{run}", window=1000, resend_s=PATIENCE_S)
            for i in range(DEVICES)
        ]
        self.plain = [
            Device(here, f"plain-{run}-{i}", f"plain_{run}", resend_s=PATIENCE_S)
            for i in range(DEVICES)
        ]
        self.sent = 0
        self.sent_s: dict[int, float] = {}
        """Monotonic clock when each message was sent."""

    async def connected(self) -> None:
        for device in (*self.agents, *self.plain):
            await device.connected()

    async def send(self, count: int, *, every_s: float = 0.005) -> None:
        """Each sends so many messages, one after the other."""
        for _ in range(count):
            self.sent += 1
            self.sent_s[self.sent] = time.monotonic()
            for device in self.agents:
                await device._turn(self.sent)
            for device in self.plain:
                device.publish(b'{"n":%d}' % self.sent, packet_id=self.sent, response_topic=None)
            await asyncio.sleep(every_s)

    async def confirmed(self) -> None:
        """The broker has everything."""
        await until(
            lambda: all(len(device.confirmed) == self.sent for device in self.plain),
            "PUBACK for everything",
        )

    def unacknowledged(self) -> int:
        """Frames whose device waits for the end-to-end acknowledgement."""
        return sum(self.sent - len(device.acks) for device in self.agents)

    async def missing(self) -> int:
        """Plain readings that the broker confirmed and Kafka does not hold."""
        found = await asyncio.to_thread(read, self.here.config, topics.UP)
        ours = {device.name.encode() for device in self.plain}
        values = {
            (one.key(), record.decode(one.value()).frame.fields["n"][0])
            for one in found
            if one.key() in ours
        }
        return len({(name, n) for name in ours for n in range(1, self.sent + 1)} - values)

    async def all_arrived(self) -> None:
        """Every frame is acknowledged and every confirmed reading is in Kafka."""
        await until(lambda: self.unacknowledged() == 0, "every frame is acknowledged")
        async with asyncio.timeout(PATIENCE_S):
            while await self.missing():
                await asyncio.sleep(0.2)


async def until(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)
