"""Older records, read from Kafka in blocks by a bounded number of readers, which the clients that need them share.

A block begins at the position asked for and ends at the next multiple of BLOCK_RECORDS (or at BLOCK_BYTES), so clients that began at
different places soon ask for the same blocks; the latest blocks are kept within `kept_bytes`, and a block that is being read is waited
for and not read twice. Nothing is held for a client between two blocks.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaException, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import warm_metadata
from edgewake.cloud.log.decode import Record
from edgewake.cloud.log.kafka_reader import found_in
from edgewake.cloud.log.tail import RECORD_OVERHEAD_BYTES
from edgewake.protocol.errors import Unavailable

BLOCK_RECORDS: Final = 512
BLOCK_BYTES: Final = 256 * 1024
"""Bytes after which a block ends; the last record may pass it."""
READ_TIMEOUT_S: Final = 10.0

_CONSUMER: Final[dict[str, Any]] = {
    "enable.partition.eof": True,
    "queued.max.messages.kbytes": 1024,
    "fetch.message.max.bytes": 512 * 1024,
    "fetch.error.backoff.ms": 20,
}


class Gone(Exception):
    """The range is no longer kept; it is a gap for the client."""


@dataclass(frozen=True, slots=True)
class Block:
    """Records from the offset asked for up to `end` (exclusive)."""

    records: Sequence[Record]
    end: int
    bytes: int


Key: TypeAlias = tuple[str, str, int, int]
"""Topic, its id in Kafka, partition, first offset."""


class Replay:
    """The readers and the blocks they share."""

    def __init__(self, config: KafkaConfig, client_id: str, *, readers: int, kept_bytes: int) -> None:
        self._config = config
        self._client_id = client_id
        self._threads = ThreadPoolExecutor(readers, thread_name_prefix="replay")
        self._mine = threading.local()
        self._consumers: list[Consumer] = []
        self._kept: OrderedDict[Key, Block] = OrderedDict()
        self._kept_bytes = 0
        self._kept_bytes_max = kept_bytes
        self._reading: dict[Key, asyncio.Future[Block]] = {}
        self._stopping = threading.Event()
        self.blocks_read = 0

    async def read(self, key: Key) -> Block:
        """The block that begins at the key's offset; raises Gone or Unavailable. It is empty only where nothing is committed yet."""
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        reading = self._reading.get(key)
        if reading is None:
            reading = asyncio.get_running_loop().run_in_executor(self._threads, self._read, key)
            self._reading[key] = reading
            reading.add_done_callback(lambda done: self._done(key, done))
        return await asyncio.shield(reading)

    def close(self) -> None:
        """End the readers, those that wait for Kafka too."""
        self._stopping.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for consumer in self._consumers:
            consumer.close()

    def _done(self, key: Key, reading: asyncio.Future[Block]) -> None:
        del self._reading[key]
        if reading.cancelled() or reading.exception() is not None:
            return
        block = reading.result()
        self.blocks_read += 1
        if block.end == key[-1]:
            return
        self._kept[key] = block
        self._kept_bytes += block.bytes
        while self._kept_bytes > self._kept_bytes_max:
            self._kept_bytes -= self._kept.popitem(last=False)[1].bytes

    def _read(self, key: Key) -> Block:
        topic, _, partition, offset = key
        consumer = self._consumer()
        if topic not in self._mine.topics:
            warm_metadata(consumer, topic)
            self._mine.topics.add(topic)
        until = (offset // BLOCK_RECORDS + 1) * BLOCK_RECORDS
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            return _read_block(consumer, key, until, self._stopping)
        except KafkaException as error:
            raise Unavailable(f"topic {topic}: {error.args[0].str()}") from error
        finally:
            consumer.unassign()

    def _consumer(self) -> Consumer:
        consumer: Consumer | None = getattr(self._mine, "consumer", None)
        if consumer is None:
            consumer = self._mine.consumer = clients.consumer(self._config, f"{self._client_id}-replay", **_CONSUMER)
            self._consumers.append(consumer)
            self._mine.topics = set()  # that it knows
        return consumer


def _read_block(consumer: Consumer, key: Key, until: int, stopping: threading.Event) -> Block:
    topic, _, partition, end = key
    records: list[Record] = []
    size = 0
    deadline = time.monotonic() + READ_TIMEOUT_S
    while end < until and size < BLOCK_BYTES:
        if time.monotonic() > deadline or stopping.is_set():
            raise Unavailable(f"topic {topic}: nothing came for {READ_TIMEOUT_S:.0f} s")
        message = consumer.poll(0.2)
        found = None if message is None else found_in(message)
        if found is None or found[:2] != (topic, partition):
            continue
        match found[2]:
            case None:
                raise Gone
            case int(at_end):
                return Block(records, max(end, at_end), size)
            case record:
                records.append(record)
                size += len(record.value) + RECORD_OVERHEAD_BYTES
                end = record.offset + 1
    return Block(records, end, size)
