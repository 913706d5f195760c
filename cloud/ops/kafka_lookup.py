"""Looking things up in Kafka: one consumer, one lookup at a time, every scan bounded in records and in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from edgewake.cloud.kafka import clients, metadata
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S, KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

LOOKUP_TIMEOUT_S: Final = 5.0
"""Of one lookup; past it the caller gets what was found, or is told to try again."""
WAITING_MAX: Final = 20
"""Lookups that wait for their turn; one more is answered 503."""

T = TypeVar("T")


class OutOfRange(LookupError):
    """The offset is not kept any more, or not yet written; `low` and `high` say what is."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(f"kept are offsets {low} to {high - 1}" if high > low else "nothing is kept")
        self.low = low
        self.high = high


class KafkaLookup:
    """Runs lookups in a thread of its own."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, "ops-lookup")
        self._consumer: Consumer | None = None
        self._waiting = 0

    async def run(self, lookup: Callable[[KafkaLookup], T]) -> T:
        """Run `lookup` in the thread. Raises what it raises, and Unavailable."""
        if self._waiting >= WAITING_MAX:
            raise Unavailable("too many lookups at once")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, lookup)
        finally:
            self._waiting -= 1

    def _guarded(self, lookup: Callable[[KafkaLookup], T]) -> T:
        try:
            return lookup(self)
        except KafkaException as error:
            raise Unavailable(f"Kafka: {error.args[0].str()}") from error
        finally:
            if self._consumer is not None:
                self._consumer.unassign()

    def _reader(self) -> Consumer:
        if self._consumer is None:
            settings: dict[str, Any] = {"enable.partition.eof": True, "queued.max.messages.kbytes": 2048, "fetch.wait.max.ms": 10}
            self._consumer = clients.consumer(self._config, "ops-lookup", **settings)
        return self._consumer

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        """First offset kept and next one to be written; raises LookupError for an unknown partition, Unavailable."""
        if partition >= metadata.partition_count(self._reader(), topic):
            raise LookupError(f"{topic} has no partition {partition}")
        return watermarks(self._reader(), topic, partition)

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
        """First offset written at `time_ms` or later; None where there is none."""
        found = self._reader().offsets_for_times([TopicPartition(topic, partition, time_ms)], timeout=METADATA_TIMEOUT_S)
        return None if found[0].offset < 0 else int(found[0].offset)

    def scan(self, topic: str, partition: int, first: int, end: int) -> Iterator[Message]:
        """Records from `first` to before `end`, as far as LOOKUP_TIMEOUT_S goes."""
        reader = self._reader()
        reader.assign([TopicPartition(topic, partition, first)])
        deadline = self._clock.monotonic_s() + LOOKUP_TIMEOUT_S
        while (left := deadline - self._clock.monotonic_s()) > 0:
            for message in reader.consume(min(200, max(1, end - first)), min(left, 0.5)):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return
                if error is not None:
                    raise KafkaException(error)
                if message.offset() >= end:
                    return
                yield message
                if message.offset() == end - 1:
                    return

    def record(self, topic: str, partition: int, offset: int) -> Message:
        """One record; raises OutOfRange, LookupError (no such partition) or Unavailable."""
        low, high = self.range(topic, partition)
        if not low <= offset < high:
            raise OutOfRange(low, high)
        for message in self.scan(topic, partition, offset, offset + 1):
            return message
        raise OutOfRange(low, high)  # a mark of a transaction, no record

    async def close(self) -> None:
        """Leave."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown()

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
