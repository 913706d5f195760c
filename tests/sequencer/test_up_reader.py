"""Reading `ew.up`: with a backlog in every partition all go on in turn, and quiet ones are read apart without a record lost or twice."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from edgewake.cloud.bridge.kafka_writer import PRODUCER
from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import UP_BATCH_BYTES, KafkaConfig
from edgewake.cloud.sequencer.traffic import QUIET_S, SORT_S, WORTH_PER_S, quiet
from edgewake.cloud.sequencer.up_reader import UpReader
from edgewake.protocol import topics
from tests.services import Kafka, wait_until

RECORD_BYTES = 4000
RECORDS = 12 * UP_BATCH_BYTES // RECORD_BYTES
"""Of each partition: twelve pieces."""
ROUND = topics.UP_PARTITIONS * UP_BATCH_BYTES // RECORD_BYTES
"""Records of a piece of each partition."""


@pytest.mark.parametrize(
    ("last_s", "records_per_s", "expected"),
    [
        ({0: 100.0, 1: 0.0, 2: 0.0, 3: 70.0}, WORTH_PER_S, {1, 2, 3}),
        ({0: 100.0, 1: 0.0, 2: 0.0, 3: 70.1}, WORTH_PER_S, {1, 2}),
        ({0: 100.0, 1: 0.0, 2: 80.0, 3: 70.1}, WORTH_PER_S, set()),
        ({0: 100.0, 1: 0.0, 2: 0.0, 3: 0.0}, WORTH_PER_S - 1, set()),
        ({}, WORTH_PER_S, set()),
    ],
)
def test_partitions_without_records_are_read_apart_where_the_others_have_many_and_are_few(
    last_s: dict[int, float], records_per_s: float, expected: set[int]
) -> None:
    assert quiet(last_s, records_per_s, 100.0) == expected
    assert QUIET_S == 30.0


def test_partitions_that_go_from_one_consumer_to_the_other_lose_no_record_and_repeat_none(own_kafka: Kafka) -> None:
    """Also those whose records lie unread in the client when they go. Time is the reader's argument: no second passes."""
    config, rng = KafkaConfig(bootstrap=own_kafka.bootstrap), random.Random(7)
    topic_admin.ensure_topics(config, [topics.UP])
    reader = UpReader(config, "test-quiet")
    producer = clients.producer(config, "test-traffic", **PRODUCER)
    every = range(topics.UP_PARTITIONS)
    begins = {partition: reader.range(partition)[1] for partition in every}
    sent: Counter[int] = Counter()
    read: dict[int, list[int]] = defaultdict(list)
    now_s, moved = 0.0, 0

    def send(partitions: Sequence[int], each: int) -> None:
        for partition in partitions:
            sent[partition] += each
            for _ in range(each):
                producer.produce(topics.UP, b"x", b"k", partition=partition)
        assert producer.flush(60) == 0

    def take(records: int) -> None:
        """At least so many more, or all."""
        until = min(sum(map(len, read.values())) + records, sent.total())
        wait_until(lambda: turn() >= until, "they are read")

    def turn() -> int:
        nonlocal moved
        before = reader.quiet
        for partition, messages in reader.batch(100, 0.1, now_s=now_s).items():
            read[partition] += [message.offset() - begins[partition] for message in messages]
        moved += len(before ^ reader.quiet)
        return sum(map(len, read.values()))

    try:
        reader.add(begins, begins, now_s=now_s)
        for _ in range(8):
            send(range(8), 50)
            now_s += SORT_S
            take(400)
        assert reader.quiet == set(every) - set(range(8)), "the others were quiet for long"
        assert all(reader.end(partition) == begins[partition] + sent[partition] for partition in every)
        for _ in range(5):
            send(rng.sample(every, 40), 20)
            take(200)
            now_s += SORT_S
            turn()  # those that had no turn count as quiet and go; their records lie in the client, or come now
            now_s += QUIET_S
            turn()  # too few came: all are read as one again
        take(sent.total())
        assert read == {partition: list(range(count)) for partition, count in sent.items()}
        assert moved > 3 * topics.UP_PARTITIONS, "they went to and fro"
    finally:
        reader.close()


def test_every_partition_has_its_turn_within_a_few_rounds(own_kafka: Kafka) -> None:
    """One that was added last, too. With batches as large as Kafka's client likes to make them a turn is all that a partition has.

    The last test of this Kafka: what it writes is no record to a sequencer.
    """
    config = KafkaConfig(bootstrap=own_kafka.bootstrap)
    topic_admin.ensure_topics(config, [topics.UP])
    reader = UpReader(config, "test-turns")
    begins = {partition: reader.range(partition)[1] for partition in range(topics.UP_PARTITIONS)}
    producer = clients.producer(config, "test-backlog", **PRODUCER, **{"compression.type": "none"})
    for i in range(RECORDS * topics.UP_PARTITIONS):
        producer.produce(topics.UP, b"x" * RECORD_BYTES, b"k", partition=i % topics.UP_PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    try:
        ends = {partition: reader.range(partition)[1] for partition in range(topics.UP_PARTITIONS)}
        seen: Counter[int] = Counter()

        def read() -> None:
            for partition, messages in reader.batch(100, 0.1, now_s=time.monotonic()).items():
                seen[partition] += len(messages)

        def all_read(partitions: range) -> bool:
            read()
            return all(seen[partition] for partition in partitions)

        most = range(topics.UP_PARTITIONS - 4)
        starts, known = ({partition: of[partition] for partition in most} for of in (begins, ends))
        reader.add(starts, known, now_s=time.monotonic())
        wait_until(lambda: all_read(most), "all that were there have had a turn")
        last = range(topics.UP_PARTITIONS - 4, topics.UP_PARTITIONS)
        before = seen.total()
        starts, known = ({partition: of[partition] for partition in last} for of in (begins, ends))
        reader.add(starts, known, now_s=time.monotonic())
        wait_until(lambda: all_read(last), "those that were added have had one")
        assert max(before, seen.total() - before) <= 5 * ROUND
        assert any(seen[partition] < ends[partition] - begins[partition] for partition in most), (
            "the others have more, so it was busy with them"
        )
    finally:
        reader.close()
