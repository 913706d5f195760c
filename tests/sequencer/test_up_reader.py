"""Reading `ew.up` with a backlog in every partition: all go on in turn."""

from __future__ import annotations

from collections import Counter

from edgewake.cloud.bridge.kafka_writer import PRODUCER
from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import UP_BATCH_BYTES, KafkaConfig
from edgewake.cloud.sequencer.up_reader import UpReader
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from tests.services import Kafka, wait_until

RECORD_BYTES = 4000
RECORDS = 12 * UP_BATCH_BYTES // RECORD_BYTES
"""Of each partition: twelve pieces."""
ROUND = topics.UP_PARTITIONS * UP_BATCH_BYTES // RECORD_BYTES
"""Records of a piece of each partition."""


def test_every_partition_has_its_turn_within_a_few_rounds(own_kafka: Kafka) -> None:
    """One that was added last, too.

    With batches as large as Kafka's client likes to make them a turn is all that a partition has.

    The last test of this Kafka: what it writes is no record to a sequencer.
    """
    config = KafkaConfig(bootstrap=own_kafka.bootstrap)
    topic_admin.ensure_topics(config, [topics.UP])
    reader = UpReader(config, "test-turns", clock=SystemClock())
    begins = {partition: reader.range(partition)[1] for partition in range(topics.UP_PARTITIONS)}
    producer = clients.producer(config, "test-backlog", **PRODUCER | {"compression.type": "none"})
    for i in range(RECORDS * topics.UP_PARTITIONS):
        producer.produce(topics.UP, b"x" * RECORD_BYTES, b"k", partition=i % topics.UP_PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    try:
        ends = {partition: reader.range(partition)[1] for partition in range(topics.UP_PARTITIONS)}
        seen: Counter[int] = Counter()

        def read() -> None:
            for partition, messages in reader.batch(100, 0.1).items():
                seen[partition] += len(messages)

        def all_read(partitions: range) -> bool:
            read()
            return all(seen[partition] for partition in partitions)

        most = range(topics.UP_PARTITIONS - 4)
        reader.add(
            {partition: begins[partition] for partition in most},
            {partition: ends[partition] for partition in most},
        )
        wait_until(lambda: all_read(most), "all that were there have had a turn")
        last = range(topics.UP_PARTITIONS - 4, topics.UP_PARTITIONS)
        before = seen.total()
        reader.add(
            {partition: begins[partition] for partition in last},
            {partition: ends[partition] for partition in last},
        )
        wait_until(lambda: all_read(last), "those that were added have had one")
        assert max(before, seen.total() - before) <= 5 * ROUND
        assert any(seen[partition] < ends[partition] - begins[partition] for partition in most), (
            "the others have more, so it was busy with them"
        )
    finally:
        reader.close()
