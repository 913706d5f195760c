"""A member of the proxies' group, and what it owns."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.push.leases.lease_member import Membership
from edgewake.cloud.push.leases.lease_writer import LeaseWriter
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.leases.lease_record import Lease
from tests.push.builders import lease
from tests.services import PATIENCE_S

CLOCK = SystemClock()

SESSION_S = 3.0


class Owner:
    """What a proxy keeps of its membership."""

    def __init__(self) -> None:
        self.leases: dict[int, Mapping[str, Lease]] = {}
        self.writers: dict[int, LeaseWriter] = {}
        self.losses: list[int] = []
        self.membership: asyncio.Task[None]
        self._writing: list[asyncio.Task[None]] = []

    def partition_owned(
        self, partition: int, leases: Mapping[str, Lease], writer: LeaseWriter
    ) -> None:
        self.leases[partition], self.writers[partition] = leases, writer
        self._writing.append(asyncio.create_task(writer.run()))

    def partition_lost(self, partition: int) -> None:
        self.losses.append(partition)
        self.leases.pop(partition), self.writers.pop(partition)

    async def has(self, count: int, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until it has so many partitions."""
        async with asyncio.timeout(timeout_s):
            while len(self.writers) != count:
                await asyncio.sleep(0.02)

    async def put(self, one: Lease) -> None:
        await self.writers[one.partition].put(one)

    async def remove(self, one: Lease) -> None:
        await self.writers[one.partition].remove(one.id)

    def find(self, one: Lease) -> Lease | None:
        return self.leases[one.partition].get(one.id)

    async def close(self) -> None:
        for task in self._writing:
            task.cancel()
        await asyncio.gather(*self._writing, return_exceptions=True)


@asynccontextmanager
async def member(config: KafkaConfig, name: str) -> AsyncIterator[Owner]:
    owner = Owner()
    membership = Membership(
        config,
        name,
        f"http://{name}:1",
        owner=owner,
        clock=CLOCK,
        rng=random.Random(1),
        session_timeout_s=SESSION_S,
    )
    task = owner.membership = asyncio.create_task(membership.run())
    try:
        yield owner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await owner.close()


def fresh(**more: object) -> Lease:
    return lease(uuid.uuid4().hex[:24], **more)
