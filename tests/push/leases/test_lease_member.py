"""The table of leases and who owns its partitions, on a real Kafka."""

from __future__ import annotations

import asyncio

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.push.peers import Peers
from edgewake.protocol.errors import LocalError
from edgewake.protocol.leases.lease_record import PARTITIONS
from tests.push.leases.owner import CLOCK, fresh, member
from tests.services import PATIENCE_S


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


async def test_of_two_proxies_of_one_name_the_earlier_one_ends_and_says_why(
    kafka_config: KafkaConfig,
) -> None:
    async with member(kafka_config, "push-a") as first:
        await first.has(PARTITIONS)
        async with member(kafka_config, "push-a") as second:
            await second.has(PARTITIONS)
            with pytest.raises(LocalError, match="another push proxy runs under the name 'push-a'"):
                async with asyncio.timeout(PATIENCE_S):
                    await first.membership
            assert not first.writers


@pytest.mark.long
async def test_a_proxy_goes_on_when_the_other_one_of_its_name_is_gone(
    kafka_config: KafkaConfig,
) -> None:
    """As after a Kafka that was killed just after it joined, and knows it as it was before."""
    async with member(kafka_config, "push-a") as first:
        await first.has(PARTITIONS)
        async with member(kafka_config, "push-a") as second:
            await second.has(PARTITIONS)
        await first.has(0)
        await first.has(PARTITIONS)
