"""How far the sequencers are, by what they commit to `ew.sequence`."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from edgewake.cloud.kafka import clients, offsets
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.frames.sequence import POSITION_KEY, decode_positions


class Progress:
    """Follows the positions of all 64 partitions; the topics exist."""

    def __init__(self, config: KafkaConfig) -> None:
        self._rows = clients.consumer(
            config, "test-progress", **{"fetch.wait.max.ms": clients.FOLLOWER_WAIT_MS}
        )
        self._ends = clients.consumer(config, "test-progress-ends")
        self._rows.assign(
            [
                TopicPartition(topics.SEQUENCE, shard, OFFSET_BEGINNING)
                for shard in range(topics.SHARDS)
            ]
        )
        self.positions: dict[int, int] = dict.fromkeys(range(topics.UP_PARTITIONS), 0)
        self.moved_ms: dict[int, list[int]] = {partition: [] for partition in self.positions}
        """When a partition went on, by the sequencers' clock, ms since 1970 UTC."""
        self.rows = 0
        """Rows of states seen."""

    def poll(self, wait_s: float = 0.0) -> None:
        """Read what is new; waits `wait_s` for the first row."""
        first = self._rows.poll(wait_s)
        messages = [] if first is None else [first, *self._rows.consume(10_000, 0)]
        for message in messages:
            if message.error() is not None:
                continue
            if message.key() != POSITION_KEY.encode():
                self.rows += 1
                continue
            for partition, position in decode_positions(message.value()).items():
                if position.emitted_before > self.positions[partition]:
                    self.positions[partition] = position.emitted_before
                    self.moved_ms[partition].append(message.timestamp()[1])

    def done(self) -> int:
        """Records of `ew.up` that are passed on, as far as it has been polled."""
        self.poll()
        return sum(self.positions.values())

    def ends(self) -> dict[int, int]:
        """Offset after the last record of each partition of `ew.up`."""
        return {
            partition: offsets.watermarks(self._ends, topics.UP, partition)[1]
            for partition in self.positions
        }

    def waiting(self) -> int:
        """Records of `ew.up` that are not passed on yet."""
        return sum(self.ends().values()) - self.done()

    def close(self) -> None:
        """Leave."""
        self._rows.close()
        self._ends.close()
