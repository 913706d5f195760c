"""Counting for leases on a real Kafka: wherever a lease begins and whatever is written meanwhile,
it counts each event once.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.clients import admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log import subscription
from edgewake.cloud.push.counting.tally import Counter
from edgewake.cloud.push.counting.watchers import Watchers
from edgewake.cloud.rights.principal import ANYBODY
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.cursor import CursorCodec, CursorKeys
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases.lease import Subscription
from tests.push.service import Readings, readings
from tests.services import PATIENCE_S

CODEC = CursorCodec(CursorKeys({1: b"k" * 32}, 1))
WHERES = [None, "device = 'dev-0'", "device = 'dev-1' AND n > 100", "n > 50"]


def wanted(where: str | None, n: int) -> bool:
    """What the filters above say of reading n, by other means."""
    return {
        None: True,
        "device = 'dev-0'": n % 3 == 0,
        "device = 'dev-1' AND n > 100": n % 3 == 1 and n > 100,
        "n > 50": n > 50,
    }[where]


@asynccontextmanager
async def watching(config: KafkaConfig) -> AsyncIterator[Watchers]:
    watchers = Watchers(config, CODEC, SystemClock(), name="test-watch", scanned_filters_max=1000)
    running = asyncio.create_task(watchers.run())
    try:
        await asyncio.sleep(0)
        yield watchers
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(is_so: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():
            await asyncio.sleep(0.02)


def new_stream(config: KafkaConfig) -> Readings:
    return readings(config, f"watch_{uuid.uuid4().hex[:12]}")


def counter(stream: Readings, where: str | None = None, **more: Any) -> Counter:
    return Counter(
        uuid.uuid4().hex,
        streams=(stream.stream,),
        where=where,
        on_change=more.pop("on_change", lambda _: None),
        **more,
    )


async def live_cursor(watchers: Watchers, stream: Readings) -> str:
    """The cursor of the stream's end."""
    plan = None
    async with asyncio.timeout(PATIENCE_S):
        while plan is None:
            with contextlib.suppress(Unavailable):  # Kafka's first answer may take its time
                plan = await watchers._hub.open(Subscription(streams=(stream.stream,)), ANYBODY)
    try:
        return CODEC.encode(plan.cursor(watchers._hub.live(plan)))
    finally:
        watchers._hub.close(plan)


async def test_leases_that_join_anywhere_at_any_time_count_each_event_once(
    kafka_config: KafkaConfig,
) -> None:
    rng, stream = random.Random(1), new_stream(kafka_config)
    async with watching(kafka_config) as watchers:
        first = await live_cursor(watchers, stream)
        reference = counter(stream)
        watchers.add(reference, first)
        known: list[tuple[str, int]] = [(first, 0)]
        joined: list[tuple[Counter, int]] = []
        for _ in range(25):
            await asyncio.to_thread(stream.add, rng.randint(1, 20))
            for _ in range(8):
                cursor, seen = rng.choice(known)
                one = counter(stream, rng.choice(WHERES))
                watchers.add(one, cursor)
                joined.append((one, seen))
            if rng.random() < 0.4:
                await until(
                    lambda: (
                        reference.count == stream.written and watchers.cursor(reference) is not None
                    )
                )
                cursor = watchers.cursor(reference)
                assert cursor is not None
                known.append((cursor, stream.written))
        await until(lambda: reference.count == stream.written)
        await until(lambda: not any(one.is_behind for one, _ in joined))
        for one, seen in joined:
            assert one.count == sum(
                wanted(one.where, n) for n in range(seen + 1, stream.written + 1)
            ), one.where
        assert len(known) > 3
        for one, _ in joined:
            watchers.remove(one)
        watchers.remove(reference)
        (watcher,) = watchers._watchers.values()
        assert len(watcher._matcher) == 0


async def test_a_count_and_its_cursor_agree_also_in_the_midst_of_counting(
    kafka_config: KafkaConfig,
) -> None:
    """A proxy stores both; its successor counts on from the cursor, and must count nothing
    twice.
    """
    stream = new_stream(kafka_config)
    async with watching(kafka_config) as watchers:
        start = await live_cursor(watchers, stream)
        # Each is evaluated for every event.
        slow = [counter(stream, f"n > {-k}") for k in range(200)]
        for one in slow:
            watchers.add(one, start)
        await until(lambda: not any(one.is_behind for one in slow))
        await asyncio.to_thread(stream.add, 1500, per_frame=50)
        seen: dict[str, int] = {}
        is_midway = False
        async with asyncio.timeout(PATIENCE_S):
            while slow[-1].count < 1500 or watchers.cursor(slow[-1]) is None:
                cursor = watchers.cursor(slow[0])
                if cursor is not None:
                    seen[cursor] = slow[0].count
                is_midway |= 0 < slow[0].count < 1500
                await asyncio.sleep(0)
        assert is_midway, "nobody looked in the midst of counting"
        for cursor, count in seen.items():
            again = counter(stream)
            watchers.add(again, cursor)
            await until(lambda again=again: not again.is_behind)  # type: ignore[misc]
            assert again.count == 1500 - count


async def test_a_lease_far_behind_is_brought_on_while_a_new_one_is_served_at_once(
    kafka_config: KafkaConfig,
) -> None:
    stream = new_stream(kafka_config)
    async with watching(kafka_config) as watchers:
        first = await live_cursor(watchers, stream)
    await asyncio.to_thread(stream.add, 9000, per_frame=3)
    async with watching(
        kafka_config
    ) as watchers:  # a process of later: nothing of before is in its memory but the latest records
        far, near = counter(stream), counter(stream)
        watchers.add(far, first)
        watchers.add(near, await live_cursor(watchers, stream))
        await until(lambda: not near.is_behind)
        stream.add(1)
        await until(lambda: near.count == 1)
        await until(lambda: far.count == 9001 and not far.is_behind)


async def test_a_stream_that_is_made_anew_is_a_gap_and_counting_goes_on(
    kafka_config: KafkaConfig,
) -> None:
    stream = new_stream(kafka_config)
    async with watching(kafka_config) as watchers:
        one = counter(stream)
        watchers.add(one, await live_cursor(watchers, stream))
        stream.add(3)
        await until(lambda: one.count == 3)
        topic = topics.stream_topic(stream.stream)
        await asyncio.to_thread(_make_anew, kafka_config, topic)
        stream.add(2)
        await until(lambda: one.unseen.gap and one.count == 5 and not one.is_behind)


def _make_anew(config: KafkaConfig, topic: str) -> None:
    client = admin(config)
    client.delete_topics([topic])[topic].result()
    while topic in client.list_topics(timeout=5).topics:  # the broker deletes in its own time
        time.sleep(0.05)
    topic_admin.ensure_topics(config, [topic])


async def test_a_stream_that_is_not_there_fails_its_leases_with_its_name(
    kafka_config: KafkaConfig,
) -> None:
    failed: list[str] = []
    async with watching(kafka_config) as watchers:
        stream = new_stream(kafka_config)
        cursor = await live_cursor(watchers, stream)
        lost = Counter("1", streams=("no_such_stream",), on_change=failed.append)
        watchers.add(lost, cursor)
        await until(lambda: lost.failed is not None)
        assert "no_such_stream" in str(lost.failed)
        assert failed == ["1"]


async def test_streams_with_more_partitions_than_may_be_read_fail_their_leases_and_no_others(
    kafka_config: KafkaConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(kafka_config) as watchers:
        grown, other = new_stream(kafka_config), new_stream(kafka_config)
        cursors = [await live_cursor(watchers, stream) for stream in (grown, other)]
        most = subscription.PARTITIONS_MAX
        monkeypatch.setattr(subscription, "PARTITIONS_MAX", 0)
        lost = Counter("1", streams=(grown.stream,), on_change=lambda _: None)
        watchers.add(lost, cursors[0])
        await until(lambda: lost.failed is not None)
        assert "partitions together" in str(lost.failed)
        monkeypatch.setattr(subscription, "PARTITIONS_MAX", most)
        served = Counter("2", streams=(other.stream,), on_change=lambda _: None)
        watchers.add(served, cursors[1])
        await until(lambda: not served.is_behind)
        assert served.failed is None
