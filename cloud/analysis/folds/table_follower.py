"""Reads the topics of joined tables, from where each was read before to their ends as they are now.

A thin shell.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from edgewake.cloud.analysis.plan.table_rows import TableRecord
from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import partition_count
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol.errors import Unavailable

PATIENCE_S: Final = 20.0
"""How long a table may give nothing before its end is reached; then the lane starts again."""
BATCH: Final = 500
"""Records that are taken at once."""
_SETTINGS: Final[dict[str, Any]] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 100,
}

Place = tuple[str, int]
"""Topic and partition."""


class TableFollower:
    """All tables of one lane. Not for several threads."""

    def __init__(
        self, config: KafkaConfig, tables: Collection[str], starts: Mapping[Place, int]
    ) -> None:
        """`tables`: topics.

        `starts`: the offset each partition is read from, by default its first.
        """
        self._consumer = clients.consumer(config, "analysis-tables", **_SETTINGS)
        self._starts = starts
        self.missing = set(tables)
        """Topics that are not there yet: a stream is in the catalogue before its first reading
        makes its topic."""
        self.positions: dict[Place, int] = {}

    def _assign(self) -> None:
        for topic in sorted(self.missing):
            places = [
                (topic, partition) for partition in range(partition_count(self._consumer, topic))
            ]
            if places:
                self.missing.discard(topic)
                self.positions |= {place: self._starts.get(place, 0) for place in places}
                self._consumer.incremental_assign(
                    [
                        TopicPartition(*place, self._starts.get(place, OFFSET_BEGINNING))
                        for place in places
                    ]
                )

    def read(self) -> Iterator[TableRecord]:
        """What is new, up to the end as it is when this begins. Raises Unavailable."""
        self._assign()
        ends = {place: watermarks(self._consumer, *place)[1] for place in self.positions}
        came_s = time.monotonic()
        while any(self.positions[place] < end for place, end in ends.items()):
            messages = self._consumer.consume(BATCH, 0.1)
            if messages:
                came_s = time.monotonic()
            elif time.monotonic() - came_s > PATIENCE_S:
                raise Unavailable(
                    f"tables {sorted({topic for topic, _ in ends})}: no record for "
                    f"{PATIENCE_S:.0f} s before their end"
                )
            for message in messages:
                topic, partition, offset, error = (
                    message.topic(),
                    message.partition(),
                    message.offset(),
                    message.error(),
                )
                assert topic is not None
                assert partition is not None
                assert offset is not None
                if error is None:
                    yield TableRecord(
                        topic,
                        partition,
                        offset,
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                    )
                    self.positions[topic, partition] = offset + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Past the markers of transactions, which are no records.
                    self.positions[topic, partition] = max(self.positions[topic, partition], offset)

    def close(self) -> None:
        """Close the consumer."""
        with suppress(KafkaException, RuntimeError):
            self._consumer.close()
