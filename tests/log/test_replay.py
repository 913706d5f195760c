"""Which older block is read next: partitions take turns, and one that cannot be read leaves the
threads to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log import replay
from edgewake.cloud.log.replay import (
    FAILURE_PAUSE_S,
    Answer,
    Block,
    BlockKey,
    Replay,
    TurnsOfPartitions,
)
from edgewake.protocol import topics
from tests.feeds import Feed
from tests.services import PATIENCE_S, Kafka


def key(partition: int, offset: int = 0) -> BlockKey:
    return "topic", "id", partition, offset


def test_partitions_take_turns_and_each_is_read_by_one_thread() -> None:
    turns = TurnsOfPartitions()
    for partition, offset in ((0, 0), (0, 512), (0, 1024), (1, 0)):
        turns.add(key(partition, offset))
    assert [turns.next(), turns.next(), turns.next()] == [key(0, 0), key(1, 0), None]
    assert turns.done(key(0, 0), failed_at=None) == []
    assert turns.next() == key(0, 512)


def test_a_thread_reads_on_where_it_stands_and_leaves_to_others_what_follows_where_they_do() -> (
    None
):
    turns = TurnsOfPartitions()
    for partition in (0, 1):
        turns.add(key(partition, 512))
    assert turns.next(key(1, 512), [key(0, 512), key(1, 512)]) == key(1, 512)
    assert turns.next(None, [key(0, 512)]) is None, "who stands there reads it"
    assert turns.next(key(0, 512), [key(0, 512)]) == key(0, 512)
    turns.add(key(0, 1024))
    assert turns.next(key(0, 1024)) is None, "it is being read by another"
    turns.done(key(0, 512), failed_at=None)
    turns.add(key(2, 0))
    assert turns.next(None, [key(0, 1024)]) == key(2, 0)
    assert turns.next() == key(0, 1024), "nobody stands there any more"


def test_a_partition_that_fails_fails_all_its_blocks_at_once_and_holds_up_no_other() -> None:
    turns = TurnsOfPartitions()
    for partition, offset in ((0, 0), (0, 512), (1, 0)):
        turns.add(key(partition, offset))
    assert turns.next() == key(0, 0)
    assert turns.done(key(0, 0), failed_at=100.0) == [key(0, 512)]
    assert turns.next() == key(1, 0)
    assert turns.is_failing(key(0, 4096), 100.0)
    assert not turns.is_failing(key(1, 4096), 100.0)
    assert not turns.is_failing(key(0, 4096), 100.0 + FAILURE_PAUSE_S)


def test_a_partition_that_can_be_read_again_is_forgiven() -> None:
    turns = TurnsOfPartitions()
    turns.add(key(0))
    turns.next()
    turns.done(key(0), failed_at=100.0)
    turns.add(key(0))
    turns.next()
    turns.done(key(0), failed_at=None)
    assert not turns.is_failing(key(0), 100.0)


@pytest.mark.services
async def test_who_reads_on_is_given_each_record_once_also_from_where_a_thread_stays(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside others who read the same partition elsewhere, at its end, and after a pause."""
    config = KafkaConfig(bootstrap=kafka.bootstrap)
    feed = Feed(config, partitions=1)
    for _ in range(12):
        feed.send("car-1", n=200, frames=100)
    monkeypatch.setattr(replay, "STAYS_S", 0.05)
    readers = Replay(config, "test", readers=2, kept_bytes=0, failed=lambda _: None)
    topic = topics.stream_topic(feed.name)

    async def block(offset: int) -> Block:
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        readers.ask((topic, "id", 0, offset), answered.set_result)
        async with asyncio.timeout(PATIENCE_S):
            found = await answered
        assert isinstance(found, Block), found
        return found

    async def offsets(*, pause_s: float) -> Sequence[int]:
        at, found = 0, list[int]()
        while records := (read := await block(at)).records:
            assert at <= records[0].offset
            found += [record.offset for record in records]
            at = read.end
            await asyncio.sleep(pause_s)
        assert not (await block(at)).records, "the end is told each time"
        return found

    try:
        alone = await offsets(pause_s=0)
        assert len(alone) == len(set(alone)) > 512, "several blocks"
        slow, fast = await asyncio.gather(offsets(pause_s=0.1), offsets(pause_s=0))
        assert slow == fast == alone
    finally:
        readers.close()
        feed.close()
