"""The table of leases, on a real Kafka."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.push.leases import LeaseWriter, Membership, NotOwner
from edgewake.protocol.lease import Lease
from tests.push.builders import lease

Owned = tuple[Mapping[str, Lease], LeaseWriter]


class Proxy:
    """What a proxy keeps of its membership."""

    def __init__(self) -> None:
        self.owned: asyncio.Queue[Owned] = asyncio.Queue()
        self.losses = 0
        self.task: asyncio.Task[None] | None = None
        self.writing: asyncio.Task[None] | None = None

    def lost(self) -> None:
        self.losses += 1

    async def own(self, *, timeout_s: float = 20) -> Owned:
        """Wait until it owns the table; its writer runs then."""
        leases, writer = await asyncio.wait_for(self.owned.get(), timeout_s)
        self.writing = asyncio.create_task(writer.run())
        return leases, writer

    async def leave(self) -> None:
        """End as a proxy does."""
        tasks = [task for task in (self.task, self.writing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def member(config: KafkaConfig, name: str) -> AsyncIterator[Proxy]:
    proxy = Proxy()
    membership = Membership(config, name, on_owned=lambda *owned: proxy.owned.put_nowait(owned), on_lost=proxy.lost, rng=random.Random(1))
    proxy.task = asyncio.create_task(membership.run())
    try:
        yield proxy
    finally:
        await proxy.leave()


def unique() -> str:
    return uuid.uuid4().hex


async def test_what_was_put_is_there_for_the_next_owner_and_what_was_removed_is_not(kafka_config: KafkaConfig) -> None:
    kept, ended = lease(unique()), lease(unique())
    async with member(kafka_config, "push-a") as first:
        _, writer = await first.own()
        await asyncio.gather(writer.put(kept), writer.put(ended))
        kept = kept.model_copy(update={"wakes": 3})
        await writer.put(kept)
        await writer.remove(ended.id)
    async with member(kafka_config, "push-a") as second:
        leases, writer = await second.own()
        assert leases[kept.id] == kept
        assert ended.id not in leases
        await writer.remove(kept.id)


async def test_a_proxy_that_joins_stands_by_and_disturbs_nobody(kafka_config: KafkaConfig) -> None:
    async with member(kafka_config, "push-a") as first:
        await first.own()
        async with member(kafka_config, "push-b") as second:
            with pytest.raises(TimeoutError):
                await second.own(timeout_s=4)
            assert first.losses == 0


async def test_another_proxy_takes_over_when_one_ends(kafka_config: KafkaConfig) -> None:
    kept = lease(unique())
    async with member(kafka_config, "push-a") as first:
        _, writer = await first.own()
        await writer.put(kept)
        async with member(kafka_config, "push-b") as second:
            await first.leave()
            leases, _ = await second.own(timeout_s=30)
            assert leases[kept.id] == kept


async def test_a_proxy_that_lost_the_table_cannot_write(kafka_config: KafkaConfig) -> None:
    """A frozen proxy that wakes up: its writes are refused by the fence, not by its own knowledge."""
    old = lease(unique(), wakes=1)
    async with member(kafka_config, "push-a") as first:
        _, writer = await first.own()
        await writer.put(old)
        successor = LeaseWriter(kafka_config)
        await asyncio.to_thread(successor.fence)
        with pytest.raises(NotOwner):
            await writer.put(old.model_copy(update={"wakes": 0}))
    async with member(kafka_config, "push-a") as third:
        leases, _ = await third.own()
        assert leases[old.id] == old
