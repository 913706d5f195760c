"""A real hub over streams in memory: all of it but Kafka, so that a test says what comes when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import orjson

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.log.ask_kafka import AskKafka
from edgewake.cloud.log.catalogue import Topic
from edgewake.cloud.log.decode import DATA, Event, Record
from edgewake.cloud.log.following.followed import Followed
from edgewake.cloud.log.hub import Hub
from edgewake.cloud.log.hub_bounds import HubBounds
from edgewake.cloud.log.replay import Block, BlockKey, Gone, OnAnswer, Replay
from edgewake.cloud.log.subscription import Bounds, Source
from edgewake.cloud.log.tail import Tail
from edgewake.protocol.clock import Clock, SystemClock
from edgewake.protocol.cursor import CursorCodec, CursorKeys
from edgewake.protocol.errors import Unavailable

WAITS_S = 20.0
"""Nothing here waits for another process: what takes longer never comes."""
CODEC = CursorCodec(CursorKeys({1: bytes(range(16))}, 1))


class MemoryLog:
    """What Kafka would have: records by stream and partition, from a first kept offset on."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int], list[Record]] = {}
        self.earliest: dict[tuple[str, int], int] = {}
        self.is_away = False
        """Does it answer nothing but that it is away?"""
        self.asked = 0

    # As AskKafka.

    async def bounds(self, sources: Sequence[Source], *, fresh: bool = False) -> list[list[Bounds]]:
        self.asked += 1
        await asyncio.sleep(0)
        if self.is_away:
            raise Unavailable("Kafka is away")
        return [
            [self._bounds(source.topic, p) for p in range(source.partitions)] for source in sources
        ]

    def _bounds(self, topic: str, partition: int) -> Bounds:
        at = (topic, partition)
        found = self.records[at]
        return Bounds(self.earliest.get(at, 0), found[-1].offset + 1 if found else 0)

    # As Replay.

    def at_hand(self, key: BlockKey) -> Block | None:
        return None

    def ask(self, key: BlockKey, on_answer: OnAnswer) -> None:
        topic, partition, offset = key[0], key[2], key[3]
        answer: Any = Unavailable("Kafka is away")
        if not self.is_away and offset < self.earliest.get((topic, partition), 0):
            answer = Gone()
        elif not self.is_away:
            found = [one for one in self.records[topic, partition] if one.offset >= offset]
            answer = Block(found, found[-1].offset + 1 if found else offset, 1)
        asyncio.get_running_loop().call_soon(on_answer, answer)


class MemoryHub:
    """A hub whose streams the test fills: `send`, then `tick` passes on what was sent."""

    def __init__(
        self, *names: str, partitions: int = 1, clock: Clock | None = None, **bounds: Any
    ) -> None:
        self.clock = clock or SystemClock()
        self.log = MemoryLog()
        self.hub = Hub(
            HubBounds(**bounds), KafkaConfig(), name="memory", codec=CODEC, clock=self.clock
        )
        self.hub.kafka = cast(AskKafka, self.log)
        self.hub.catalogue.close()
        views = self.hub.views
        views._shared = replace(views._shared, replay=cast(Replay, self.log))
        self.hub._failed = asyncio.get_running_loop().create_future()
        self.hub._loop = asyncio.get_running_loop()
        self._number = self._time = 0
        for name in names or ("s",):
            self.follow(name, partitions)

    def follow(self, name: str, partitions: int = 1, topic_id: str = "id") -> Followed:
        """A stream as if its topic had just been made."""
        for p in range(partitions):
            self.log.records[name, p] = []
        self.hub.catalogue.topics = {
            **self.hub.catalogue.topics,
            name: Topic(name, name, is_query=False, partitions=partitions),
        }
        source = Source(name, name, is_query=False, topic_id=topic_id, partitions=partitions)
        entry = Followed(source, [Tail(0) for _ in range(partitions)], [0] * partitions)
        self.hub.streams.add(entry)
        return entry

    def put(
        self, *readings: dict[str, Any], stream: str = "s", partition: int = 0, kind: str = DATA
    ) -> None:
        """One record of readings, each with its number as `seq`; `tick` passes it on."""
        entry = self.hub.streams.by_name[stream]
        events = []
        for reading in readings:
            self._number += 1
            fields = {"device": "d", "stream": stream, **reading, "seq": self._number}
            events.append(Event(kind, fields, orjson.dumps(fields)))
        self._time += 1
        value, end = b"x" * 10, entry.tails[partition].end
        record = Record(end, self._time, value, is_result=False, order=self._time, decoded=events)
        self.log.records[stream, partition].append(record)
        self.hub.streams.add_batch({stream: entry.assignment}, [(stream, partition, record)])

    def tick(self) -> None:
        """Pass on what was put."""
        self.hub._pass_on()

    def send(self, *readings: dict[str, Any], **more: Any) -> None:
        """Put a record and pass it on."""
        self.put(*readings, **more)
        self.tick()

    def evict(self, stream: str = "s", partition: int = 0) -> None:
        """Memory has nothing of a partition any more; Kafka has it still."""
        tail = self.hub.streams.by_name[stream].tails[partition]
        while len(tail):
            self.hub.streams.by_name[stream].bytes -= (freed := tail.evict())
            self.hub.streams.bytes -= freed

    def trim(self, before: int, stream: str = "s", partition: int = 0) -> None:
        """Retention passed: what is before `before` is gone, from memory too."""
        self.evict(stream, partition)
        self.log.earliest[stream, partition] = before

    def close_stream(self, name: str = "s", why: str = "its topic was recreated") -> None:
        """End all readers of a stream."""
        self.hub._close(self.hub.streams.by_name[name], why)

    @property
    def failed(self) -> BaseException | None:
        """What would end the hub."""
        found = self.hub._failed
        return found.exception() if found is not None and found.done() else None


@asynccontextmanager
async def left_empty(memory: MemoryHub) -> AsyncIterator[MemoryHub]:
    """Whatever was opened in between was closed, and nothing failed."""
    yield memory
    await turns()
    assert memory.failed is None
    assert len(memory.hub.views) == 0
    assert {name: entry.readers for name, entry in memory.hub.streams.by_name.items()} == (
        dict.fromkeys(memory.hub.streams.by_name, 0)
    )
    assert memory.hub.cohorts_reading == 0


async def turns(count: int = 20) -> None:
    """Let everybody have some turns of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Any) -> None:
    """Turns of the event loop until it holds."""
    async with asyncio.timeout(WAITS_S):
        while not condition():
            await asyncio.sleep(0)
