"""Looks up records in Kafka for requests, several at a time, each with one deadline.

A read returns its whole result or raises DeadlinePassed, which says where to continue; it never
ends early silently.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from edgewake.cloud.client_share import Bound
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S, KafkaConfig
from edgewake.cloud.kafka.metadata import partition_count
from edgewake.cloud.kafka.mortal import Mortal
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.ops.lookups.asked_by import ASKED_BY
from edgewake.cloud.turns import Turns
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

LOOKUP_TIMEOUT_S: Final = 5.0
"""Seconds for one request, including its wait for a thread."""
AT_ONCE_MAX: Final = 4
"""The number of lookups that run at the same time, each with its own thread and consumer, so that a
slow one delays no other."""
WAITING_MAX: Final = 20
"""The most lookups that run or wait for a thread; one more is answered 503."""
HOLDER_SHARE: Final = 0.75
"""The share of WAITING_MAX that one holder of a key may use."""
READ_BATCH: Final = 200
"""The most records fetched from Kafka's client at once."""

T = TypeVar("T")


class OutOfRange(LookupError):
    """The offset has expired or is not written yet; `low` and `high` say what exists."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(
            f"retained are offsets {low} to {high - 1}" if high > low else "nothing is retained"
        )
        self.low = low
        self.high = high


class DeadlinePassed(Unavailable):
    """The time of the request is over; all records before `offset` were read."""

    def __init__(self, offset: int) -> None:
        super().__init__(
            f"Kafka did not return all records within {LOOKUP_TIMEOUT_S:g} s; "
            f"read up to offset {offset}"
        )
        self.offset = offset


class Deadline:
    """The moment at which a request's time is over."""

    def __init__(self, clock: Clock, seconds: float = LOOKUP_TIMEOUT_S) -> None:
        self._clock = clock
        self._at_s = clock.monotonic_s() + seconds

    def left_s(self) -> float:
        """Returns the seconds until then; 0 afterwards."""
        return max(0.0, self._at_s - self._clock.monotonic_s())

    def cut(self) -> None:
        """Ends the time now, because nobody waits for the result any more."""
        self._at_s = float("-inf")


class KafkaSession:
    """Reads Kafka for one lookup. Not thread-safe."""

    def __init__(self, consumer: Consumer, deadline: Deadline) -> None:
        self._consumer = consumer
        self._deadline = deadline

    def partitions(self, topic: str) -> int:
        """Returns the number of partitions; 0 for an unknown topic. Raises Unavailable."""
        return partition_count(self._consumer, topic)

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        """Returns the first retained offset and the next one to be written.

        Raises LookupError for an unknown partition, and Unavailable.
        """
        if partition >= partition_count(self._consumer, topic):
            raise LookupError(f"{topic} has no partition {partition}")
        return watermarks(
            self._consumer,
            topic,
            partition,
            patience_s=min(METADATA_TIMEOUT_S, self._deadline.left_s()),
        )

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
        """Returns the first offset with a timestamp of `time_ms` or later, or None."""
        timeout_s = max(0.01, min(METADATA_TIMEOUT_S, self._deadline.left_s()))
        found = self._consumer.offsets_for_times(
            [TopicPartition(topic, partition, time_ms)], timeout=timeout_s
        )
        return None if found[0].offset < 0 else int(found[0].offset)

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[Message]:
        """Yields every committed record from `first` to before `end`.

        Raises DeadlinePassed where the time does not suffice.
        """
        if first >= end:
            return
        self._consumer.assign([TopicPartition(topic, partition, first)])
        position = first
        while True:
            message = self._consumer.poll(self._deadline.left_s())
            if message is None or self._deadline.left_s() == 0:
                raise DeadlinePassed(position)
            # `consume` waits until it has as many records as asked for. So this waits for one
            # record and takes the others without waiting.
            for one in (message, *self._consumer.consume(READ_BATCH, 0)):
                error = one.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    return
                if error is not None:
                    raise KafkaException(error)
                if one.offset() >= end:
                    return
                yield one
                position = int(one.offset()) + 1
                if position == end:
                    return

    def record(self, topic: str, partition: int, offset: int) -> Message:
        """Reads one record. Raises OutOfRange, LookupError (unknown partition) or Unavailable."""
        low, high = self.range(topic, partition)
        if not low <= offset < high:
            raise OutOfRange(low, high)
        for message in self.read(topic, partition, offset, offset + 1):
            return message
        raise OutOfRange(low, high)  # The offset belongs to a transaction marker.


class KafkaLookup:
    """Runs lookups in threads, each with its own consumer."""

    def __init__(
        self, config: KafkaConfig, clock: Clock, *, timeout_s: float = LOOKUP_TIMEOUT_S
    ) -> None:
        self._config = config
        self._clock = clock
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(AT_ONCE_MAX, "ops-lookup")
        self._turns = Turns(Bound("lookups", WAITING_MAX, HOLDER_SHARE), AT_ONCE_MAX)
        self._own = threading.local()
        self._consumers: list[Mortal[Consumer]] = []

    async def run(self, lookup: Callable[[KafkaSession], T]) -> T:
        """Runs `lookup` in a thread. Raises what it raises, and Unavailable."""
        deadline = Deadline(self._clock, self._timeout_s)
        over = await self._turns.take(ASKED_BY.get())
        future = self._threads.submit(self._guarded, lookup, deadline)
        # Not when the caller disconnects: the thread is busy until the lookup ends.
        future.add_done_callback(lambda _: over())
        try:
            return await asyncio.wrap_future(future)
        finally:
            deadline.cut()

    def _guarded(self, lookup: Callable[[KafkaSession], T], deadline: Deadline) -> T:
        if deadline.left_s() == 0:
            raise Unavailable(f"no lookup ended within {self._timeout_s:g} s")
        try:
            with self._consumer().asked() as consumer:
                try:
                    return lookup(KafkaSession(consumer, deadline))
                finally:
                    consumer.unassign()
        except KafkaException as error:
            raise Unavailable(f"Kafka: {error.args[0].str()}") from error

    def _consumer(self) -> Mortal[Consumer]:
        """Returns the consumer of the calling thread."""
        consumer: Mortal[Consumer] | None = getattr(self._own, "consumer", None)
        if consumer is None:
            settings: dict[str, Any] = {
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 2048,
                "fetch.wait.max.ms": 10,
            }
            consumer = self._own.consumer = clients.asked_consumer(
                self._config, "ops-lookup", **settings
            )
            self._consumers.append(consumer)
        return consumer

    async def close(self) -> None:
        """Waits for running lookups and closes the consumers."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        for consumer in self._consumers:
            await asyncio.to_thread(consumer.end)
