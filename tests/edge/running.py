"""A log and its uplink in this process, without the agent around them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from edgewake.edge.config import AgentConfig
from edgewake.edge.log.config import LogConfig
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.uplink.config import UplinkConfig
from edgewake.edge.uplink.sender import Uplink
from edgewake.protocol.broker import BrokerConfig
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.ops.device import DeviceState, DeviceStatus
from tests.edge.helpers import reading
from tests.edge.peer import Peer
from tests.services import PATIENCE_S


class Running:
    """A log and its uplink, as the agent has them."""

    def __init__(self, config: AgentConfig) -> None:
        self.events = EventLog(
            config.data_dir,
            config.log,
            config.uplink,
            clock=SystemClock(),
            rng=random.Random(1),
            on_frames=lambda frames: self.uplink.hand_over(frames),
        )
        status = DeviceStatus(device=config.device, state=DeviceState.ONLINE)
        self.uplink = Uplink(
            config, self.events, clock=SystemClock(), rng=random.Random(1), status=lambda: status
        )
        self.log = self.events.stream("speed")

    async def put(self, numbers: range) -> None:
        """Readings, accepted."""
        await self.log.accepted(self.log.append_all(reading(n) for n in numbers))


@asynccontextmanager
async def running(
    directory: Path,
    port: int,
    device: str,
    *,
    mqtt: BrokerConfig | None = None,
    fallback: tuple[BrokerConfig, ...] = (),
    **uplink: float,
) -> AsyncIterator[Running]:
    settings = {
        "frame_readings_max": 10,
        "backoff_min_s": 0.05,
        "backoff_max_s": 0.2,
        "drain_s": 2.0,
    } | uplink
    config = AgentConfig(
        device=device,
        data_dir=directory,
        mqtt=mqtt or BrokerConfig(port=port),
        fallback=fallback,
        log=LogConfig(reserve_bytes=0, linger_ms=0),
        uplink=UplinkConfig(**settings),  # type: ignore[arg-type]
    )
    one = Running(config)
    task = asyncio.create_task(one.uplink.run())
    try:
        yield one
    finally:
        one.uplink.drain()
        await asyncio.wait_for(task, 10)
        await asyncio.to_thread(one.events.close)


async def drained(one: Running, *, timeout_s: float = PATIENCE_S) -> None:
    """Wait until the cloud has acknowledged everything."""
    async with asyncio.timeout(timeout_s):
        while (await one.events.ask_status()).backlog_readings:
            await asyncio.sleep(0.01)


def ns(peer: Peer, device: str) -> list[object]:
    return [row["n"] for row in peer.kept.readings(device, "speed")]
