"""The one Kafka reader of a process: a thread that reads all followed partitions.

It hands batches to the event loop. Partitions are assigned by hand, never by a group. A batch has
at most BATCH_BYTES (and the last record) of what was `Found`. At most BATCHES_AHEAD batches wait
for the loop; then the thread waits, and librdkafka's own bounded queue fills, and so on to the
broker.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from typing import Any, Final, TypeAlias

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import warm_metadata
from edgewake.cloud.kafka.offsets import GONE
from edgewake.cloud.log.decode import Record
from edgewake.cloud.traces.events import Traced
from edgewake.cloud.traces.tracer import of_headers
from edgewake.protocol.ops import result
from edgewake.protocol.topics import QUERY_PREFIX, STREAM_PREFIX

log = logging.getLogger("edgewake.hub")

BATCH_BYTES: Final = 256 * 1024
BATCH_RECORDS: Final = 500
BATCHES_AHEAD: Final = 2
POLL_S: Final = 0.05
"""Seconds that a new assignment waits at most."""


@dataclass(frozen=True, slots=True)
class ReachedEnd:
    """No more records are committed before `offset`."""

    offset: int


@dataclass(frozen=True, slots=True)
class RangeLost:
    """The next records are not kept any more."""


Found: TypeAlias = tuple[str, int, Record | ReachedEnd | RangeLost]
"""Topic, partition, and what was found there."""
Deliver: TypeAlias = Callable[[Mapping[str, int], Sequence[Found]], None]
"""Gets the number of each topic's assignment, so that what came from an earlier one is told apart,
and a batch."""

FETCH_WAIT_MS: Final = 100
"""How long Kafka holds back a fetch that finds nothing; a new record ends the wait at once. The
first client of a stream waits that long at most while a fetch of the other streams is under way,
and an idle server asks that often (with 20 ms for 0.01 of a core)."""
CONSUMER: Final[dict[str, Any]] = {
    "enable.partition.eof": True,  # tells how far nothing is left, transaction markers included
    "queued.max.messages.kbytes": 4096,
    "fetch.message.max.bytes": 1024 * 1024,
    "fetch.wait.max.ms": FETCH_WAIT_MS,
}


def found_in(message: Message, now_ms: Callable[[], int] | None = None) -> Found | None:
    """What a message of the consumer means; with `now_ms` also, when it came, of what is traced.

    None for a passing error, from which librdkafka recovers by itself.
    """
    error = message.error()
    topic, partition = message.topic(), message.partition()
    if error is None:
        record = _record(message, topic)
        if now_ms is not None and (headers := of_headers(message.headers() or ())):
            record.trace = Traced(headers, topic, partition, record.offset, now_ms())
        return topic, partition, record
    if error.code() == KafkaError._PARTITION_EOF:
        return topic, partition, ReachedEnd(message.offset())
    if error.code() in GONE:
        return topic, partition, RangeLost()
    log.debug("Kafka reader: %s", error.str())
    return None


def _record(message: Message, topic: str) -> Record:
    is_result = topic.startswith(QUERY_PREFIX)
    name = topic.removeprefix(QUERY_PREFIX if is_result else STREAM_PREFIX)
    is_watermark = is_result and result.is_watermark(message.key())
    stamp = message.timestamp()[1]
    return Record(
        message.offset(),
        stamp,
        message.value() or b"",
        is_result,
        is_watermark,
        stamp,
        intern(name),
        message.partition(),
    )


class KafkaReader:
    """`assign` and `unassign` are for any thread; `deliver` and `failed` run in the reader's."""

    def __init__(
        self,
        config: KafkaConfig,
        client_id: str,
        *,
        deliver: Deliver,
        failed: Callable[[BaseException], None],
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """`now_ms`: where traced records are to bear their headers, and when they came."""
        self._now_ms = now_ms
        self._consumer: Consumer = clients.consumer(config, client_id, **CONSUMER)
        self._deliver = deliver
        self._failed = failed
        self._commands: queue.SimpleQueue[tuple[int | None, list[TopicPartition]]] = (
            queue.SimpleQueue()
        )
        """At most one for each stream that came or went since the thread last looked, which it does
        several times a second."""
        self._assignments: Mapping[str, int] = {}
        self._room = threading.Semaphore(BATCHES_AHEAD)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="kafka-reader", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def assign(self, partitions: Sequence[TopicPartition], assignment: int) -> None:
        """Read these partitions of one topic too, from their offsets.

        Their batches bear the assignment's number.
        """
        self._commands.put((assignment, list(partitions)))

    def unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these no longer."""
        self._commands.put((None, list(partitions)))

    def make_room(self) -> None:
        """The loop has stored a batch: there is room for another."""
        self._room.release()

    def stop(self) -> None:
        """End and wait for it."""
        self._stopping = True
        self._room.release()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._apply_commands()
                batch = self._read()
                if batch:
                    self._room.acquire()
                    self._deliver(self._assignments, batch)
            self._consumer.close()
        except BaseException as error:
            # The loop must learn of any error: a reader that dies silently is the worst of all.
            self._failed(error)

    def _apply_commands(self) -> None:
        while not self._commands.empty():
            assignment, partitions = self._commands.get()
            if assignment is None:
                self._consumer.incremental_unassign(partitions)
            else:
                topic = partitions[0].topic
                warm_metadata(self._consumer, topic)
                self._consumer.incremental_assign(partitions)
                self._assignments = {**self._assignments, topic: assignment}

    def _read(self) -> list[Found]:
        batch: list[Found] = []
        size = 0
        wait_s = POLL_S
        while size < BATCH_BYTES and len(batch) < BATCH_RECORDS:
            message = self._consumer.poll(wait_s)
            if message is None:
                break
            found = found_in(message, self._now_ms)
            if found is not None:
                batch.append(found)
                size += len(found[2].value) if isinstance(found[2], Record) else 0
            wait_s = 0
        return batch
