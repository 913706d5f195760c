"""The progress of the sequencers in `ew.up`, and where it ends, as Kafka reports it.

Blocks: for a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import OffsetSpec

from edgewake.cloud.kafka import clients, offsets
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S, KafkaConfig
from edgewake.protocol import topics

UNANSWERED: Final = 3
"""Looks in a row that fail before who looks says so, once: after it was made `ew.up` is without
leaders for a moment."""


class UpPlaces:
    """Asks. Every question raises KafkaException where Kafka does not answer."""

    def __init__(self, config: KafkaConfig, client_id: str) -> None:
        self._admin = clients.admin(config)
        # It joins nothing and reads nothing, it asks for the group's offsets. An AdminClient that
        # is asked for them while the group's coordinator is away or moving ends the whole process:
        # librdkafka 2.16 looks for the coordinator of a consumer it does not have.
        self._group = clients.asked_consumer(config, client_id, group=topics.SEQUENCER_GROUP)

    def sequenced(self) -> Mapping[int, int]:
        """Partition → offset below which all is sequenced; none where nothing ever was."""
        places = [TopicPartition(topics.UP, partition) for partition in range(topics.UP_PARTITIONS)]
        with self._group.asked() as group:
            found = group.committed(places, timeout=METADATA_TIMEOUT_S)
        return {one.partition: one.offset for one in found if one.offset >= 0}

    def ends(self) -> Mapping[int, int]:
        """Partition → offset after its last record."""
        return self._offsets(OffsetSpec.latest())

    def from_time(self, time_ms: int) -> Mapping[int, int]:
        """Partition → first offset whose record is of this time or younger; -1 where none is."""
        return self._offsets(OffsetSpec.for_timestamp(time_ms))

    def _offsets(self, spec: OffsetSpec) -> Mapping[int, int]:
        asked = [TopicPartition(topics.UP, partition) for partition in range(topics.UP_PARTITIONS)]
        found = offsets.listed(self._admin, asked, spec, isolation=IsolationLevel.READ_UNCOMMITTED)
        return {partition: offset for (_, partition), offset in found.items()}

    def close(self) -> None:
        """Close the connections."""
        self._group.end()
