"""Reads the partitions of `ew.up` that this process serves, each from where its shard says.

Belongs to no group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from edgewake.cloud.kafka import clients, offsets
from edgewake.cloud.kafka.config import UP_BATCH_BYTES, KafkaConfig
from edgewake.cloud.sequencer.gathering import Gathering
from edgewake.cloud.sequencer.membership import check_event
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock

_CONSUMER: Final[dict[str, Any]] = {
    # A record ends the wait at once; only the empty answers get fewer, and each of those names all
    # partitions.
    "fetch.wait.max.ms": 500,
    # What lies in this queue is read before anything of a shard that is taken over: with 16 MiB
    # those were seconds of work, for small records half of a takeover at full load. And of every
    # partition a little, so that all go on in turn when all have a backlog.
    "queued.max.messages.kbytes": 4_096,
    "queued.min.messages": 20_000,
    "fetch.message.max.bytes": UP_BATCH_BYTES,
    "fetch.max.bytes": UP_BATCH_BYTES * topics.UP_PARTITIONS,
}


class UpReader:
    """A consumer with partitions that come and go.

    Where a partition's offset is not kept any more it raises (never begins elsewhere).
    """

    def __init__(self, config: KafkaConfig, name: str, *, clock: Clock) -> None:
        self._clock = clock
        self._consumer: Consumer = clients.consumer(config, f"{name}-up", **_CONSUMER)
        # A question on a connection where a fetch waits is answered after it: half a second for
        # each of 64 partitions.
        self._asker: Consumer = clients.consumer(config, f"{name}-up-range")
        self._served: set[int] = set()
        self._ends: dict[int, int] = {}
        self._gathering = Gathering()

    def range(self, partition: int) -> tuple[int, int]:
        """First offset kept, and the next one to be written.

        For several threads. Raises Unavailable.
        """
        return offsets.watermarks(self._asker, topics.UP, partition)

    def add(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> None:
        """Read these partitions, too, from these offsets on. `ends`: as `range` had them."""
        self._ends |= ends
        self._consumer.incremental_assign(
            [TopicPartition(topics.UP, partition, start) for partition, start in starts.items()]
        )
        self._served |= starts.keys()

    def remove(self, partitions: Iterable[int]) -> None:
        """Read these no longer."""
        gone = self._served & set(partitions)
        if gone:
            self._consumer.incremental_unassign(
                [TopicPartition(topics.UP, partition) for partition in gone]
            )
            self._served -= gone

    def batch(self, records_max: int, wait_s: float) -> dict[int, list[Message]]:
        """What is there, by partition: waits for the first record, and for more that come soon.

        Raises KafkaException.
        """
        batches: dict[int, list[Message]] = defaultdict(list)
        if not self._served:
            return batches
        first = self._consumer.poll(wait_s)
        if first is None:
            return batches
        wait = self._gathering.wait(self._clock.monotonic_s())
        messages = [
            first,
            *self._consumer.consume(min(wait.records, records_max - 1), wait.seconds),
        ]
        messages += self._consumer.consume(records_max - len(messages), 0)
        self._gathering.note(len(messages))
        for message in messages:
            if message.error() is not None:
                check_event(message)
            elif message.partition() in self._served:
                batches[message.partition()].append(message)
        return batches

    def end(self, partition: int) -> int:
        """The offset after the last record of a partition, by the broker's last answer."""
        _, high = self._consumer.get_watermark_offsets(
            TopicPartition(topics.UP, partition), cached=True
        )
        return max(int(high), self._ends[partition])

    def close(self) -> None:
        """Close the consumer and the client that asks Kafka."""
        self._consumer.close()
        self._asker.close()
