"""The table of leases and who owns its partitions, on a real Kafka."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.push.leases.lease_member import Membership
from edgewake.cloud.push.leases.lease_writer import LeaseWriter, NotOwner
from edgewake.cloud.push.peers import Peers
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.leases.lease_record import PARTITIONS, Lease
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
    task = asyncio.create_task(membership.run())
    try:
        yield owner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await owner.close()


def fresh(**more: object) -> Lease:
    return lease(uuid.uuid4().hex[:24], **more)


async def test_what_was_put_is_there_for_the_next_owner_and_what_was_removed_is_not(
    kafka_config: KafkaConfig,
) -> None:
    kept, ended = fresh(), fresh()
    async with member(kafka_config, "push-a") as first:
        await first.has(PARTITIONS)
        await asyncio.gather(first.put(kept), first.put(ended))
        kept = kept.but(wakes=3)
        await first.put(kept)
        await first.remove(ended)
    async with member(kafka_config, "push-a") as second:
        await second.has(PARTITIONS)
        assert (second.find(kept), second.find(ended)) == (kept, None)
        await second.remove(kept)


async def test_two_proxies_share_the_partitions_and_one_takes_over_what_the_other_leaves(
    kafka_config: KafkaConfig,
) -> None:
    leases = [fresh() for _ in range(40)]
    async with member(kafka_config, "push-a") as first:
        await first.has(PARTITIONS)
        await asyncio.gather(*map(first.put, leases))
        async with member(kafka_config, "push-b") as second:
            await first.has(PARTITIONS // 2)
            await second.has(PARTITIONS // 2)
            assert not set(first.writers) & set(second.writers)
            moved = [one for one in leases if one.partition in second.writers]
            assert moved
            assert all(second.find(one) == one for one in moved)
            peers = Peers(kafka_config, CLOCK, "http://push-a:1")
            try:
                for partition in range(PARTITIONS):
                    assert await peers.url_of(partition) == (
                        "http://push-b:1" if partition in second.writers else None
                    )
            finally:
                await peers.close()
        await first.has(PARTITIONS)
        assert all(first.find(one) == one for one in moved)
        await asyncio.gather(*map(first.remove, leases))


async def test_a_proxy_that_lost_a_partition_cannot_write_to_it_and_goes_on_with_the_others(
    kafka_config: KafkaConfig,
) -> None:
    """A frozen proxy that wakes up: its writes are refused by the fence, not by its own
    knowledge.
    """
    old, other = fresh(wakes=1), fresh()
    while other.partition == old.partition:
        other = fresh()
    async with member(kafka_config, "push-a") as first:
        await first.has(PARTITIONS)
        await first.put(old)
        successor = LeaseWriter(kafka_config, old.partition, CLOCK)
        await asyncio.to_thread(successor.fence)
        with pytest.raises(NotOwner):
            await first.put(old.but(wakes=0))
        await first.put(other)
    async with member(kafka_config, "push-a") as third:
        await third.has(PARTITIONS)
        assert (third.find(old), third.find(other)) == (old, other)
        await asyncio.gather(third.remove(old), third.remove(other))


async def test_a_commit_proves_ownership_as_of_its_beginning(kafka_config: KafkaConfig) -> None:
    one = fresh()
    async with member(kafka_config, "push-a") as first:
        await first.has(PARTITIONS)
        writer = first.writers[one.partition]
        assert writer.proved_at == float("-inf")
        before = CLOCK.monotonic_s()
        await first.put(one)
        assert before <= writer.proved_at <= CLOCK.monotonic_s()
        await first.remove(one)
