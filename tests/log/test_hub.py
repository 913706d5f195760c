"""The hub in this process, on real Kafka: what it follows, what it forgets, what it reads again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from edgewake.cloud.access.sse import Encoder
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.config import HubConfig
from edgewake.cloud.log.hub import Full, Hub
from edgewake.cloud.log.reader import Reader
from edgewake.cloud.log.subscription import OnGap, Plan, Request
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.cursor import CursorCodec
from edgewake.protocol.lease import Subscription
from tests.feeds import DEADLINE_S, Feed, eventually


@asynccontextmanager
async def hub_on(config: KafkaConfig, **settings: float) -> AsyncIterator[Hub]:
    codec = CursorCodec({1: b"k" * 32})
    hub = Hub(HubConfig(**settings), config, name="hub-test", codec=codec, clock=SystemClock())
    running = asyncio.create_task(hub.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await hub.catalogue.looked.wait()
        yield hub
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def opened(hub: Hub, *names: str, start: str = "latest", **more: str) -> tuple[Plan, Reader]:
    from edgewake.cloud.log.subscription import parse_start

    plan = await hub.open(Subscription(streams=names, **more))
    begin = await hub.start(plan, Request(plan.subscription, start=parse_start(start)))
    return plan, hub.reader(plan, begin.positions)


async def pull(hub: Hub, reader: Reader, count: int, on_gap: OnGap = OnGap.EARLIEST) -> list[int]:
    """Numbers of the next `count` readings; a gap is its negative loss."""
    found: list[int] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            passed = await hub.next(reader, on_gap)
            found += [-gap.fields["lost"] for gap in passed.gaps]
            if passed.batch is not None:
                found += [int(step.event.fields["n"]) for step in passed.batch.steps]
            elif not passed.gaps:
                await hub.news()
    return found


async def test_a_reader_comes_from_the_oldest_record_into_the_tail_without_a_seam(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=1)
    feed.send(n=2, frames=700)
    async with hub_on(kafka_config, tail_back_records=50) as hub:
        _, reader = await opened(hub, feed.name, start="earliest")
        assert reader.cold()
        assert await pull(hub, reader, 1400) == list(range(1, 1401))
        feed.send(n=3)
        assert await pull(hub, reader, 3) == [1401, 1402, 1403]
        assert not reader.cold()


async def test_two_readers_of_the_same_past_cost_one_reading_of_it(kafka_config: KafkaConfig, new_feed: Callable[..., Feed]) -> None:
    feed = new_feed(partitions=1)
    feed.send(n=1, frames=1600)
    async with hub_on(kafka_config, tail_back_records=50) as hub:
        _, first = await opened(hub, feed.name, start="earliest")
        await pull(hub, first, 1600)
        read = hub.replay.blocks_read
        _, second = await opened(hub, feed.name, start="earliest")
        await pull(hub, second, 1600)
        assert hub.replay.blocks_read == read > 2


async def test_retention_that_passes_a_reader_on_its_way_is_a_gap(kafka_config: KafkaConfig, new_feed: Callable[..., Feed]) -> None:
    feed = new_feed(partitions=1)
    feed.send(n=1, frames=2000)
    async with hub_on(kafka_config, tail_back_records=50) as hub:
        _, reader = await opened(hub, feed.name, start="earliest")
        await hub.next(reader)
        at = reader.positions[0][0][0]
        feed.trim(0, 1900)
        found = await pull(hub, reader, 3)
        assert found[:2] == [at - 1900, 1901]


async def test_tails_keep_within_their_bounds(kafka_config: KafkaConfig, new_feed: Callable[..., Feed]) -> None:
    feeds = [new_feed(partitions=1) for _ in range(3)]
    text = ["x" * 8000]
    async with hub_on(kafka_config, tail_bytes=1 << 20, tails_bytes=4 << 20) as hub:
        plan, reader = await opened(hub, *(feed.name for feed in feeds))
        for feed in feeds:
            feed.send(fields={"n": [1.0], "text": text}, frames=200)
        assert len(await pull(hub, reader, 600)) == 600
        assert hub.tails_bytes == sum(entry.bytes for entry in hub.followed.values()) <= 3 << 20
        assert all(0 < entry.bytes <= 1 << 20 for entry in hub.followed.values())
        hub.close(plan)


async def test_a_stream_that_nobody_reads_is_dropped(kafka_config: KafkaConfig, feed: Feed) -> None:
    async with hub_on(kafka_config, idle_s=0) as hub:
        plan, _ = await opened(hub, feed.name)
        await asyncio.sleep(0)
        assert feed.name in hub.followed
        hub.close(plan)
        await eventually(lambda: feed.name not in hub.followed, "the stream is dropped")
        assert hub.tails_bytes == 0
        _, reader = await opened(hub, feed.name)
        feed.send(n=1)
        assert await pull(hub, reader, 1) == [1]


async def test_one_stream_more_than_may_be_followed_is_refused(kafka_config: KafkaConfig, new_feed: Callable[..., Feed]) -> None:
    async with hub_on(kafka_config, followed_max=1) as hub:
        await opened(hub, new_feed().name)
        with pytest.raises(Full):
            await opened(hub, new_feed().name)


async def test_a_view_is_shared_and_goes_with_its_last_client(kafka_config: KafkaConfig, feed: Feed) -> None:
    async with hub_on(kafka_config) as hub:
        plan, _ = await opened(hub, feed.name)
        encoder = Encoder(hub.codec, plan, checkpoint_events=False)
        view = hub.view(plan, "lone ids", encoder)
        assert hub.view(plan, "lone ids", encoder) is view
        assert hub.view(plan, "events", encoder) is not view
        hub.leave(view, "lone ids")
        assert hub.view(plan, "lone ids", encoder) is not view


async def test_a_dead_reader_thread_ends_the_hub(kafka_config: KafkaConfig, feed: Feed) -> None:
    codec = CursorCodec({1: b"k" * 32})
    hub = Hub(HubConfig(), kafka_config, name="hub-dies", codec=codec, clock=SystemClock())
    running = asyncio.create_task(hub.run())
    await hub.catalogue.looked.wait()
    assert hub._reader is not None
    hub._reader._commands.put((1, ["not a partition"]))  # type: ignore[list-item]
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(running, DEADLINE_S)


async def test_a_long_past_is_read_without_pauses(kafka_config: KafkaConfig, new_feed: Callable[..., Feed]) -> None:
    """40 blocks take half a second. With librdkafka's own pause after a full queue (fetch.queue.backoff.ms) it is ten and more."""
    feed = new_feed(partitions=1)
    for _ in range(20):
        feed.send(fields={"n": [1.0] * 100, "text": ["x" * 500] * 100}, n=100, frames=10)
    async with hub_on(kafka_config, tail_back_records=0) as hub:
        _, reader = await opened(hub, feed.name, start="earliest")
        began = asyncio.get_running_loop().time()
        while reader.cold():
            await hub.next(reader)
        assert asyncio.get_running_loop().time() - began < 6
        assert hub.replay.blocks_read > 30
