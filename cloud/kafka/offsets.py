"""The range of offsets that partitions have."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S
from edgewake.protocol.errors import Unavailable

LEADER_S: Final = 0.05
"""Seconds between two questions for a new topic's leader."""
_NO_LEADER_YET: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION}
)


def watermarks(consumer: Consumer, topic: str, partition: int, *, patience_s: float = METADATA_TIMEOUT_S) -> tuple[int, int]:
    """First offset kept and next one to be written. A topic just made has no leader yet: asks again for `patience_s`.

    Raises Unavailable.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=METADATA_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER_YET or time.monotonic() > deadline:
                raise Unavailable(f"topic {topic}: {error.args[0].str()}") from error
            time.sleep(LEADER_S)
        else:
            return int(low), int(high)


def ranges(client: AdminClient, counts: Mapping[str, int]) -> dict[str, dict[int, tuple[int, int]]]:
    """Topic → partition → first offset kept, and the one after the last committed record: two questions, however many there are.

    `counts`: how many partitions each topic has. Raises KafkaException.
    """
    partitions = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
    if not partitions:
        return {}
    first, last = (_listed(client, partitions, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
    return {name: {p: (first[name, p], last[name, p]) for p in range(count)} for name, count in counts.items()}


def _listed(client: AdminClient, partitions: Sequence[TopicPartition], spec: OffsetSpec) -> dict[tuple[str, int], int]:
    futures = client.list_offsets(
        dict.fromkeys(partitions, spec), isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=METADATA_TIMEOUT_S
    )
    return {(p.topic, p.partition): int(future.result().offset) for p, future in futures.items()}
