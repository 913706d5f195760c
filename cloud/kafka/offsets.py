"""The range of offsets that a partition has."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

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
