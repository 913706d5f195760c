"""Only the owner of a partition writes to it."""

from __future__ import annotations

import asyncio

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.push.leases.lease_writer import LeaseWriter, NotOwner
from edgewake.protocol.leases.lease_record import PARTITIONS
from tests.push.leases.owner import CLOCK, fresh, member


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
