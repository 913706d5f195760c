"""Looks records up in Kafka for requests: several at a time, each with one deadline.

A read ends by its result or raises DeadlinePassed, which says from where to go on; it never ends
early in silence.
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
"""Seconds of one request, its waiting for a thread included."""
AT_ONCE_MAX: Final = 4
"""Lookups that read at the same time, each with a thread and a consumer of its own: a slow one
keeps no other waiting."""
WAITING_MAX: Final = 20
"""Lookups under way or waiting for a thread; one more is answered 503."""
HOLDER_SHARE: Final = 0.75
"""The share of WAITING_MAX that one key's holder may have."""
READ_BATCH: Final = 200
"""Records taken from Kafka's client at once."""

T = TypeVar("T")


class OutOfRange(LookupError):
    """The offset is not kept any more, or not yet written; `low` and `high` say what is."""

    def __init__(self, low: int, high: int) -> None:
        super().__init__(
            f"kept are offsets {low} to {high - 1}" if high > low else "nothing is kept"
        )
        self.low = low
        self.high = high


class DeadlinePassed(Unavailable):
    """The time of the request is over; what is before `offset` was read."""

    def __init__(self, offset: int) -> None:
        super().__init__(
            f"Kafka gave not all records within {LOOKUP_TIMEOUT_S:g} s; read up to offset {offset}"
        )
        self.offset = offset


class Deadline:
    """The moment at which a request's time is over."""

    def __init__(self, clock: Clock, seconds: float = LOOKUP_TIMEOUT_S) -> None:
        self._clock = clock
        self._at_s = clock.monotonic_s() + seconds

    def left_s(self) -> float:
        """Seconds until then; 0 afterwards."""
        return max(0.0, self._at_s - self._clock.monotonic_s())

    def cut(self) -> None:
        """Nobody waits for the result any more."""
        self._at_s = float("-inf")


class KafkaSession:
    """Kafka for one lookup. Not for several threads."""

    def __init__(self, consumer: Consumer, deadline: Deadline) -> None:
        self._consumer = consumer
        self._deadline = deadline

    def partitions(self, topic: str) -> int:
        """Partitions of a topic; 0 where it does not exist. Raises Unavailable."""
        return partition_count(self._consumer, topic)

    def range(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the first retained offset and the next one to be written.

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
        """The first offset whose record has the timestamp `time_ms` or a later one.

        None: no such record.
        """
        timeout_s = max(0.01, min(METADATA_TIMEOUT_S, self._deadline.left_s()))
        found = self._consumer.offsets_for_times(
            [TopicPartition(topic, partition, time_ms)], timeout=timeout_s
        )
        return None if found[0].offset < 0 else int(found[0].offset)

    def read(self, topic: str, partition: int, first: int, end: int) -> Iterator[Message]:
        """Yield every committed record from `first` to before `end`.

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
            # `consume` waits for its whole number; so one is waited for, and what else is there is
            # taken without waiting.
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
        """One record; raises OutOfRange, LookupError (no such partition) or Unavailable."""
        low, high = self.range(topic, partition)
        if not low <= offset < high:
            raise OutOfRange(low, high)
        for message in self.read(topic, partition, offset, offset + 1):
            return message
        raise OutOfRange(low, high)  # the marker of a transaction, no record


class KafkaLookup:
    """Runs lookups in threads, each with a consumer of its own."""

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
        """Run `lookup` in a thread. Raises what it raises, and Unavailable."""
        deadline = Deadline(self._clock, self._timeout_s)
        over = await self._turns.take(ASKED_BY.get())
        future = self._threads.submit(self._guarded, lookup, deadline)
        # Not when the caller leaves: the thread is busy until the lookup ends.
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
        """The consumer of the thread that calls."""
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
        """Wait for the lookups under way and leave Kafka."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        for consumer in self._consumers:
            await asyncio.to_thread(consumer.end)
