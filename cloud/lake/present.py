"""Reads the present, the records of Kafka after the lake's, into memory with a bound."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import topic_ids
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.cloud.lake.gather import Foreign, Gathered
from edgewake.cloud.lake.manifest import Partition, Place
from edgewake.cloud.lake.sources import Source, is_row

ROWS_MAX: Final = 1_000_000
"""Rows of the present in one question, some 200 bytes each while they are gathered. A writer that
keeps up leaves a minute's."""
BYTES_MAX: Final = 128 << 20
"""Bytes of the records of the present in one question."""
BATCH: Final = 500
_CONSUMER: Final[dict[str, Any]] = {"enable.partition.eof": True}


@dataclass(slots=True)
class Present:
    """The records that were read from Kafka."""

    gathered: dict[str, Gathered] = field(default_factory=dict)
    """By topic."""
    left: int = 0
    """Records that were not read, at the bounds or because time was over."""
    lost: int = 0
    """Records that Kafka deleted before the lake had them."""

    @property
    def rows(self) -> int:
        """Rows in all."""
        return sum(one.count for one in self.gathered.values())


def read(
    config: KafkaConfig,
    sources: Iterable[Source],
    partitions: Mapping[str, int],
    places: Mapping[Partition, Place],
    *,
    seconds: float,
) -> Present:
    """Everything committed after `places` in the sources' topics.

    Raises Unavailable and KafkaException.
    """
    wanted = {source.topic: source for source in sources if partitions.get(source.topic)}
    present = Present({topic: Gathered(source.kind) for topic, source in wanted.items()})
    if not wanted:
        return present
    consumer = clients.consumer(config, "sql", **_CONSUMER)
    try:
        ids = topic_ids(clients.admin(config), wanted)
        ends: dict[Partition, int] = {}
        begins: dict[Partition, int] = {}
        for partition in (
            (topic, number) for topic in wanted for number in range(partitions[topic])
        ):
            low, high = watermarks(consumer, *partition)
            known = places.get(partition)
            is_known = (
                known is not None and known.topic_id == ids[partition[0]] and known.next <= high
            )
            at = known.next if known is not None and is_known else low
            present.lost += max(0, low - at)
            if max(at, low) < high:
                begins[partition], ends[partition] = max(at, low), high
        consumer.assign([TopicPartition(*partition, at) for partition, at in begins.items()])
        present.left = _read(consumer, present, begins, ends, time.monotonic() + seconds)
    finally:
        consumer.close()
    return present


def _read(
    consumer: Consumer,
    present: Present,
    at: dict[Partition, int],
    ends: Mapping[Partition, int],
    deadline_s: float,
) -> int:
    """Read on from `at` until the partitions end; how many records are left."""
    open_, rows, size = set(ends), 0, 0
    while (
        open_
        and rows < ROWS_MAX
        and size < BYTES_MAX
        and (left_s := deadline_s - time.monotonic()) > 0
    ):
        first = consumer.poll(min(left_s, 0.5))
        for message in [] if first is None else [first, *consumer.consume(BATCH - 1, 0)]:
            partition = (message.topic(), message.partition())
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                open_.discard(partition)
                continue
            at[partition] = message.offset() + 1
            if at[partition] >= ends[partition]:
                open_.discard(partition)
            rows += _add(present.gathered[message.topic()], message)
            size += len(message.value() or b"")
    return sum(max(0, ends[partition] - at[partition]) for partition in open_)


def _add(gathered: Gathered, message: Message) -> int:
    value = message.value()
    if value is None or not is_row(message):
        return 0
    try:
        return gathered.add(
            value, key=message.key(), partition=message.partition(), offset=message.offset()
        )
    except Foreign:
        return 0  # the writer counts them
