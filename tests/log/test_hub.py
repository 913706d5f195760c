"""The hub in this process, on real Kafka: what it follows, what it shares, what it forgets, what it
reads again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log import replay
from edgewake.cloud.log.catalogue import Topic, UnknownStream
from edgewake.cloud.log.chunks import UNUSED_S, Chunk
from edgewake.cloud.log.decode import Event
from edgewake.cloud.log.following.block_slots import Claim
from edgewake.cloud.log.following.cohort import Lost
from edgewake.cloud.log.following.followed import Followed
from edgewake.cloud.log.following.subscriber import Subscriber, ViewEnded, ViewFailed
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import Full, HubBounds
from edgewake.cloud.log.reader import Batch
from edgewake.cloud.log.request import OnGap, Request, parse_start
from edgewake.cloud.log.subscription import Plan
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.cursor import CursorCodec, CursorKeys
from edgewake.protocol.leases.lease import Subscription
from tests.feeds import DEADLINE_S, Feed, eventually


class Events:
    """An encoding: the events themselves. Counts what it was asked for."""

    name = "events"
    event_bytes = 100

    def __init__(self) -> None:
        self.encoded = 0

    def encode(self, batch: Batch) -> tuple[Sequence[Event], int]:
        self.encoded += len(batch.steps)
        return [step.event for step in batch.steps], sum(
            len(step.event.data) for step in batch.steps
        )


class Reading:
    """One subscriber and what it was given: numbers of readings; a gap is its negative loss."""

    def __init__(
        self, hub: Hub, plan: Plan, subscriber: Subscriber[Sequence[Event]], woken: asyncio.Event
    ) -> None:
        self.hub, self.plan, self.subscriber, self.woken = hub, plan, subscriber, woken
        self.found: list[int] = []

    async def next(self) -> list[int]:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                self.woken.clear()
                item = self.subscriber.next()
                if isinstance(item, Lost):
                    return [
                        -(await self.hub.gap(self.subscriber, item, OnGap.EARLIEST)).event.fields[
                            "lost"
                        ]
                    ]
                if isinstance(item, Chunk):
                    return [int(event.fields["n"]) for event in item.content or ()]
                await self.woken.wait()

    async def pull(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            found += await self.next()
        self.found += found
        return found

    def close(self) -> None:
        self.subscriber.close()
        self.hub.close(self.plan)


@asynccontextmanager
async def hub_on(config: KafkaConfig, **settings: float) -> AsyncIterator[Hub]:
    codec = CursorCodec(CursorKeys({1: b"k" * 32}, 1))
    hub = Hub(HubBounds(**settings), config, name="hub-test", codec=codec, clock=SystemClock())
    running = asyncio.create_task(hub.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await hub.catalogue.looked.wait()
        yield hub
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def reading(
    hub: Hub, *names: str, start: str = "latest", encoding: Events | None = None, **more: str
) -> Reading:
    plan = await hub.open(Subscription(streams=names, **more), ANYBODY)
    begin = await hub.start(
        plan, Request(plan.subscription, start=parse_start(start, SystemClock().now_ms()))
    )
    woken = asyncio.Event()
    return Reading(
        hub, plan, hub.subscribe(plan, encoding or Events(), begin.positions, woken.set), woken
    )


async def test_a_reader_comes_from_the_oldest_record_into_the_tail_without_a_seam(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=1)
    feed.send(n=2, frames=700)
    async with hub_on(kafka_config, tail_back_records=50) as hub:
        reader = await reading(hub, feed.name, start="earliest")
        assert await reader.pull(1400) == list(range(1, 1401))
        assert hub.replay.blocks_read > 0
        feed.send(n=3)
        assert await reader.pull(3) == [1401, 1402, 1403]


async def test_all_who_stand_at_one_place_cost_one_reading_one_filtering_and_one_encoding(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=2)
    for device in ("dev-1", "dev-2", "dev-3"):
        feed.send(device, n=1, frames=1000)
    async with hub_on(kafka_config, tail_back_records=50) as hub:
        events = Events()
        readers = [
            await reading(hub, feed.name, start="earliest", encoding=events, where="n % 2 = 0")
            for _ in range(40)
        ]
        found = await asyncio.gather(*(reader.pull(1500) for reader in readers))
        assert {len(numbers) for numbers in found} == {1500}
        assert events.encoded == 1500
        read = hub.replay.blocks_read
        later = await reading(hub, feed.name, start="earliest", encoding=events, where="n % 2 = 0")
        await later.pull(1500)
        assert hub.replay.blocks_read == read


async def test_after_a_pause_the_readings_are_those_of_the_places_and_not_of_the_clients(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    """Forty clients at four places stop asking while more comes than is kept of chunks and tails;
    then all go on.
    """
    feed = new_feed(partitions=1)
    text = ["x" * 400] * 100
    async with hub_on(
        kafka_config, tail_bytes=1 << 20, tail_back_records=0, chunks_bytes=1 << 20
    ) as hub:
        events = Events()
        readers = [await reading(hub, feed.name, encoding=events) for _ in range(40)]
        for place in range(4):
            feed.send(fields={"n": [float(place)] * 100, "text": text}, n=100)
            for reader in readers[10 * place :]:
                await reader.pull(100)
        feed.send(fields={"n": [5.0] * 100, "text": text}, n=100, frames=60)
        passed = 100 + 200 + 300 + 400
        alone = 4 * 100 + 60 * 100 - 100
        before = events.encoded
        await asyncio.gather(
            *(reader.pull(6000 + 300 - 100 * (i // 10)) for i, reader in enumerate(readers))
        )
        assert [len(reader.found) for reader in readers] == [6400] * 40
        # Each place may read alone up to the next border, which is at most a block away.
        assert events.encoded - before < 2 * alone, (
            f"forty clients would encode {40 * alone}; {passed} came before"
        )


async def test_a_filter_that_fails_ends_its_own_view_and_no_other(
    kafka_config: KafkaConfig, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Events):
        name = "failing"

        def encode(self, batch: Batch) -> tuple[Sequence[Event], int]:
            raise TypeError("'<' not supported between 'list' and 'list'")

    async with hub_on(kafka_config) as hub:
        good = await reading(hub, feed.name)
        bad = await reading(hub, feed.name, encoding=Failing())
        feed.send(n=3)
        with pytest.raises(ViewFailed, match="not supported"):
            await bad.next()
        assert await good.pull(3) == [1, 2, 3]
        bad.close()
        feed.send(n=2)
        assert await good.pull(2) == [4, 5]
        assert len(hub.views) == 1


async def test_retention_that_passes_a_reader_on_its_way_is_a_gap(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "STAYS_S", 0.0)  # nor has a thread what comes next already
    feed = new_feed(partitions=1)
    feed.send(n=1, frames=2000)
    async with hub_on(kafka_config, tail_back_records=50, replay_bytes=1 << 20) as hub:
        reader = await reading(hub, feed.name, start="earliest")
        await reader.next()
        at = reader.subscriber.positions[0][0][0]
        feed.trim(0, 1900)
        hub.chunks.drop_unused(time.monotonic() + UNUSED_S)
        hub.replay._kept.clear()  # blocks that were read: retention took them from Kafka
        hub.replay._kept_bytes = 0
        found = await reader.pull(3)
        assert found[:2] == [at - 1900, 1901]


async def test_older_records_of_streams_and_partitions_come_in_the_order_of_time(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    """Two streams of two partitions, written in turn.

    Each is read whole before the next: retention would run over the others.
    """
    feeds = [new_feed(partitions=2) for _ in range(2)]
    for turn in range(60):
        for feed in feeds:
            feed.send("dev-1" if turn % 2 else "dev-2", fields={"n": [float(turn)] * 20}, n=20)
        await asyncio.sleep(0.004)  # Kafka's own times of records are whole milliseconds
    async with hub_on(kafka_config, tail_back_records=0) as hub:
        reader = await reading(hub, *(feed.name for feed in feeds), start="earliest")
        found = await reader.pull(2 * 60 * 20)
        assert hub.replay.blocks_read >= 4
        assert max(before - after for before, after in pairwise(found)) <= 1


async def test_tails_keep_within_their_bounds(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    feeds = [new_feed(partitions=1) for _ in range(3)]
    text = ["x" * 8000]
    async with hub_on(kafka_config, tail_bytes=1 << 20, tails_bytes=4 << 20) as hub:
        reader = await reading(hub, *(feed.name for feed in feeds))
        for feed in feeds:
            feed.send(fields={"n": [1.0], "text": text}, frames=200)
        assert len(await reader.pull(600)) == 600
        assert (
            hub.streams.bytes
            == sum(entry.bytes for entry in hub.streams.by_name.values())
            <= 3 << 20
        )
        assert all(0 < entry.bytes <= 1 << 20 for entry in hub.streams.by_name.values())
        reader.close()


async def test_chunks_that_nobody_asks_for_are_freed_and_a_view_goes_with_its_last_subscriber(
    kafka_config: KafkaConfig, feed: Feed
) -> None:
    async with hub_on(kafka_config) as hub:
        one, two = await reading(hub, feed.name), await reading(hub, feed.name)
        assert one.subscriber.view is two.subscriber.view
        assert (
            await reading(hub, feed.name, where="n > 0")
        ).subscriber.view is not one.subscriber.view
        feed.send(n=100)
        for reader in (one, two):
            await reader.pull(100)
        assert hub.chunks.bytes > 5000
        hub.chunks.drop_unused(time.monotonic() + UNUSED_S)
        assert (hub.chunks.bytes, len(hub.chunks)) == (0, 0)
        one.close()
        assert len(hub.views) == 2
        two.close()
        assert len(hub.views) == 1


@pytest.mark.parametrize(("blocks_max", "is_bound"), [(6, True), (500, False)])
async def test_readers_at_many_places_of_many_old_partitions_hold_no_more_blocks_than_they_may(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed], blocks_max: int, is_bound: bool
) -> None:
    """Each place needs a block of each of four partitions.

    The control: without the bound more are held at once.
    """
    feed = new_feed(partitions=4)
    for device in range(12):
        feed.send(f"dev-{device}", n=20, frames=5)
    total = 12 * 100
    async with hub_on(kafka_config, tail_back_records=0, blocks_max=blocks_max) as hub:
        peak, reserve = 0, hub.block_slots.reserve

        def noting(claim: Claim, count: int) -> bool:
            nonlocal peak
            found = reserve(claim, count)
            peak = max(peak, hub.block_slots.reserved)
            return found

        hub.block_slots.reserve = noting  # type: ignore[method-assign]
        readers = [
            await reading(hub, feed.name, start="earliest", where=f"n > {-i}") for i in range(12)
        ]
        found = await asyncio.gather(*(reader.pull(total) for reader in readers))
        assert [len(numbers) for numbers in found] == [total] * 12
        assert (peak <= 6) == is_bound
        assert peak >= 4
        await eventually(lambda: hub.block_slots.reserved == 0, "who is at the end holds no block")
        assert hub.cohorts_reading == 0
        for reader in readers:
            reader.close()


async def test_idle_views_are_not_touched_by_other_streams_records(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    busy, idle = new_feed(), new_feed()
    async with hub_on(kafka_config) as hub:
        live = await reading(hub, busy.name)
        sleeping = [await reading(hub, idle.name, where=f"n > {i}") for i in range(20)]
        touched: list[object] = []
        for each in sleeping:
            view = each.subscriber.view
            view.on_records = lambda view=view: touched.append(view)  # type: ignore[misc, assignment]
        busy.send(n=1, frames=50)
        await live.pull(50)
        assert touched == []


async def test_a_stream_that_nobody_reads_is_dropped(kafka_config: KafkaConfig, feed: Feed) -> None:
    async with hub_on(kafka_config, idle_s=0) as hub:
        reader = await reading(hub, feed.name)
        await asyncio.sleep(0)
        assert feed.name in hub.streams.by_name
        reader.close()
        await eventually(lambda: feed.name not in hub.streams.by_name, "the stream is dropped")
        assert hub.streams.bytes == 0
        reader = await reading(hub, feed.name)
        feed.send(n=1)
        assert await reader.pull(1) == [1]


async def test_one_stream_more_than_may_be_followed_is_refused(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    async with hub_on(kafka_config, followed_max=1) as hub:
        await reading(hub, new_feed().name)
        with pytest.raises(Full):
            await reading(hub, new_feed().name)


async def test_a_stream_that_another_opened_meanwhile_is_followed_once(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, feed = sorted((new_feed(), new_feed()), key=lambda feed: feed.name)
    async with hub_on(kafka_config) as hub:
        ask_about = hub._ask_about
        may_go_on = asyncio.Event()

        async def asked(topic: Topic) -> Followed:
            if topic.name == slow.name:
                await may_go_on.wait()
            return await ask_about(topic)

        monkeypatch.setattr(hub, "_ask_about", asked)
        both = asyncio.create_task(reading(hub, slow.name, feed.name))
        await eventually(lambda: slow.name in hub._opening._asking, "the first is being opened")
        other = await reading(hub, feed.name)
        followed = hub.streams.by_name[feed.name]
        may_go_on.set()
        readers = (await both, other)
        assert hub.streams.by_name[feed.name] is followed
        feed.send(n=1)
        for reader in readers:
            assert await reader.pull(1) == [1]


async def test_two_who_open_more_streams_than_may_be_followed_do_not_take_each_others(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    """Each dropped what the other had opened just now, for ever, and neither got an answer."""
    ours, theirs = [new_feed().name for _ in range(2)], [new_feed().name for _ in range(2)]
    async with hub_on(kafka_config, followed_max=3) as hub:
        async with asyncio.timeout(DEADLINE_S / 2):
            found = await asyncio.gather(
                reading(hub, *ours), reading(hub, *theirs), return_exceptions=True
            )
        served = [one for one in found if isinstance(one, Reading)]
        assert all(isinstance(one, Reading | Full) for one in found)
        assert len(served) <= 1
        for one in served:
            one.close()
        assert {entry.readers for entry in hub.streams.by_name.values()} == {0}
        again = await reading(hub, *ours)
        assert {source.name for source in again.plan.sources} <= hub.streams.by_name.keys()


async def test_who_asks_for_more_streams_than_may_be_followed_at_all_is_refused(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    async with hub_on(kafka_config, followed_max=2) as hub, asyncio.timeout(DEADLINE_S / 2):
        with pytest.raises(Full):
            await reading(hub, *(new_feed().name for _ in range(3)))
        assert {entry.readers for entry in hub.streams.by_name.values()} == {0}


async def test_who_leaves_a_stream_that_was_closed_leaves_its_next_readers_alone(
    kafka_config: KafkaConfig, feed: Feed
) -> None:
    """It was counted as one of them: the stream was dropped under who read it."""
    async with hub_on(kafka_config, idle_s=0) as hub:
        before = await reading(hub, feed.name)
        hub._close(hub.streams.by_name[feed.name], "the next records are not kept any more")
        after = await reading(hub, feed.name)
        before.close()
        assert hub.streams.by_name[feed.name].readers == 1
        feed.send(n=1)
        assert await after.pull(1) == [1]


async def test_clients_that_come_back_all_at_once_ask_kafka_once(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=1)
    feed.send(n=1, frames=300)
    async with hub_on(kafka_config, tail_back_records=10) as hub:
        cursors = []
        first = await reading(hub, feed.name, start="earliest")
        for _ in range(3):
            await first.next()
            cursors.append(hub.codec.encode(first.plan.cursor(first.subscriber.positions)))
        feed.trim(0, 290)
        await asyncio.sleep(0.6)  # what was known is too old by then
        asked = hub.kafka.questions
        plans = [await hub.open(first.plan.subscription, ANYBODY) for _ in range(300)]
        await asyncio.gather(
            *(hub.start(plan, Request(plan.subscription, cursors[0])) for plan in plans)
        )
        # Once for all; and once more before the gap, which is to say what is kept now, for those
        # who asked while that was asked.
        assert 1 <= hub.kafka.questions - asked <= 3


async def test_unknown_names_do_not_hold_up_the_opening_of_a_stream(
    kafka_config: KafkaConfig, feed: Feed
) -> None:
    async with hub_on(kafka_config) as hub:
        await hub.catalogue.find((feed.name,), ANYBODY)
        looks = hub.catalogue.generation
        unknown = [
            asyncio.create_task(hub.open(Subscription(streams=(f"no_such_{i}",)), ANYBODY))
            for i in range(100)
        ]
        await asyncio.sleep(0)
        await hub.open(Subscription(streams=(feed.name,)), ANYBODY)
        found = await asyncio.gather(*unknown, return_exceptions=True)
        assert {type(error) for error in found} == {UnknownStream}
        assert hub.catalogue.generation - looks <= 5, (
            "one look at Kafka's topics serves all who ask at the same time"
        )


async def test_a_stream_made_anew_ends_its_views(kafka_config: KafkaConfig, feed: Feed) -> None:
    async with hub_on(kafka_config) as hub:
        reader = await reading(hub, feed.name)
        hub._close(hub.streams.by_name[feed.name], "its topic was recreated")
        with pytest.raises(ViewEnded, match="recreated"):
            await reader.next()


async def test_a_dead_reader_thread_ends_the_hub(kafka_config: KafkaConfig, feed: Feed) -> None:
    hub = Hub(
        HubBounds(),
        kafka_config,
        name="hub-dies",
        codec=CursorCodec(CursorKeys({1: b"k" * 32}, 1)),
        clock=SystemClock(),
    )
    running = asyncio.create_task(hub.run())
    await hub.catalogue.looked.wait()
    hub._reader._commands.put((1, ["not a partition"]))  # type: ignore[list-item]
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(running, DEADLINE_S)


async def test_a_long_past_is_read_block_by_block(
    kafka_config: KafkaConfig, new_feed: Callable[..., Feed]
) -> None:
    feed = new_feed(partitions=1)
    for _ in range(20):
        feed.send(fields={"n": [1.0] * 100, "text": ["x" * 500] * 100}, n=100, frames=10)
    async with hub_on(kafka_config, tail_back_records=0) as hub:
        reader = await reading(hub, feed.name, start="earliest")
        await reader.pull(20_000)
        assert hub.replay.blocks_read > 30
