"""Reads the partitions of `ew.up` that this process serves, each from where its shard says. Belongs to no group.

While a few of them have all the traffic, the quiet ones are read by a consumer of their own (traffic.py). A partition that goes from one to
the other goes on at the record after the last one that was given out, and none is taken from the one that it left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

from edgewake.cloud.kafka import clients, offsets
from edgewake.cloud.kafka.config import UP_BATCH_BYTES, KafkaConfig
from edgewake.cloud.kafka.metadata import warm_metadata
from edgewake.cloud.sequencer import traffic
from edgewake.cloud.sequencer.membership import check_event
from edgewake.protocol import topics

GATHER_S: Final = 0.02
"""Seconds that records are gathered for under load. Each of 16 shards commits a transaction of its own, which costs Kafka about as much as
100 records: with what is there at the moment, 20 000 a second are 900 transactions, gathered 350."""
GATHER_RATE: Final = 2_000
"""Records a second from which they are gathered; fewer are committed as they come."""
LOOK_S: Final = 0.05
"""Seconds that a record of a quiet partition may wait for one of the others, while quiet ones are read apart."""
_CONSUMER: Final[dict[str, Any]] = {
    # A record ends the wait at once; only the empty answers get fewer, and each of those names all partitions.
    "fetch.wait.max.ms": 500,
    # What lies in this queue is read before anything of a shard that is taken over: with 16 MiB those were seconds of work, for small
    # records half of a takeover at full load. And of every partition a little, so that all go on in turn when all have a backlog.
    "queued.max.messages.kbytes": 4_096,
    "queued.min.messages": 20_000,
    "fetch.message.max.bytes": UP_BATCH_BYTES,
    "fetch.max.bytes": UP_BATCH_BYTES * topics.UP_PARTITIONS,
}


class UpReader:
    """A consumer with partitions that come and go. Where a partition's offset is no longer there it raises (never begins elsewhere)."""

    def __init__(self, config: KafkaConfig, name: str) -> None:
        self._consumer: Consumer = clients.consumer(config, f"{name}-up", **_CONSUMER)
        self._quiet_consumer: Consumer = clients.consumer(config, f"{name}-up-quiet", **_CONSUMER)
        # A question on a connection where a fetch waits is answered after it: half a second for each of 64 partitions.
        self._asker: Consumer = clients.consumer(config, f"{name}-up-range")
        warm_metadata(self._quiet_consumer, topics.UP)
        self._next: dict[int, int] = {}
        """Partition → offset of its next record, of those that are read."""
        self._last_s: dict[int, float] = {}
        """Partition → when its last record came, or when it was added."""
        self._ends: dict[int, int] = {}
        self.quiet: frozenset[int] = frozenset()
        """Partitions that are read by the consumer of the quiet ones."""
        self._records = 0
        """Since the last look at the traffic."""
        self._sorted_s = float("-inf")
        self._is_busy = False
        self._read_s = float("-inf")

    def range(self, partition: int) -> tuple[int, int]:
        """First offset kept, and the next one to be written. For several threads. Raises Unavailable."""
        return offsets.watermarks(self._asker, topics.UP, partition)

    def add(self, starts: Mapping[int, int], ends: Mapping[int, int], *, now_s: float) -> None:
        """Read these partitions, too, from these offsets on. `ends`: as `range` had them."""
        self._ends |= ends
        self._consumer.incremental_assign([TopicPartition(topics.UP, partition, start) for partition, start in starts.items()])
        self._next |= starts
        self._last_s |= dict.fromkeys(starts, now_s)

    def remove(self, partitions: Iterable[int]) -> None:
        """Read these no longer."""
        gone = self._next.keys() & set(partitions)
        for consumer, its in ((self._consumer, gone - self.quiet), (self._quiet_consumer, gone & self.quiet)):
            if its:
                consumer.incremental_unassign([TopicPartition(topics.UP, partition) for partition in its])
        self.quiet -= gone
        for partition in gone:
            del self._next[partition], self._last_s[partition]

    def batch(self, records_max: int, wait_s: float, *, now_s: float) -> dict[int, list[Message]]:
        """What is there, by partition: waits for the first record, and under load for more. Raises KafkaException."""
        batches: dict[int, list[Message]] = defaultdict(list)
        if not self._next:
            return batches
        self._sort(now_s)
        of_quiet = self._quiet_consumer.consume(records_max // 2, 0) if self.quiet else []
        wait_s = 0 if of_quiet else min(wait_s, LOOK_S) if self.quiet else wait_s
        first = self._consumer.poll(wait_s)
        most = records_max - len(of_quiet) - 1
        messages = [] if first is None else [first, *self._consumer.consume(most, GATHER_S if self._is_busy else 0)]
        count = len(of_quiet) + len(messages)
        self._is_busy = count >= GATHER_RATE * (now_s - self._read_s)
        self._read_s = now_s
        self._records += count
        self._take(of_quiet, self.quiet, batches)
        self._take(messages, self._next.keys() - self.quiet, batches)
        self._last_s |= dict.fromkeys(batches, now_s)
        return batches

    def _take(self, messages: Iterable[Message], read: Set[int], batches: dict[int, list[Message]]) -> None:
        """Sort in what a consumer gave of the partitions that are `read` by it, each record once."""
        for message in messages:
            if message.error() is not None:
                check_event(message)
            elif (partition := message.partition()) in read and (offset := message.offset()) >= self._next[partition]:
                batches[partition].append(message)
                self._next[partition] = offset + 1

    def _sort(self, now_s: float) -> None:
        """Now and then: read quiet partitions apart, and those that have traffic again with the others."""
        since_s = now_s - self._sorted_s
        if since_s < traffic.SORT_S:
            return
        quiet = traffic.quiet(self._last_s, self._records / since_s, now_s)
        self._sorted_s, self._records = now_s, 0
        self._move(quiet - self.quiet, self._consumer, self._quiet_consumer)
        self._move(self.quiet - quiet, self._quiet_consumer, self._consumer)
        self.quiet = quiet

    def _move(self, partitions: Set[int], source: Consumer, target: Consumer) -> None:
        if partitions:
            self._ends |= {partition: self.end(partition) for partition in partitions}
            source.incremental_unassign([TopicPartition(topics.UP, partition) for partition in partitions])
            target.incremental_assign([TopicPartition(topics.UP, partition, self._next[partition]) for partition in partitions])

    def end(self, partition: int) -> int:
        """Offset after the last record of a partition that is read, as the last answer of the broker had it."""
        consumer = self._quiet_consumer if partition in self.quiet else self._consumer
        _, high = consumer.get_watermark_offsets(TopicPartition(topics.UP, partition), cached=True)
        return max(int(high), self._ends[partition])

    def close(self) -> None:
        """Leave."""
        for consumer in (self._consumer, self._quiet_consumer, self._asker):
            consumer.close()
