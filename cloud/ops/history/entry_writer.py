"""Writes entries to a topic of one partition, where nothing waits for Kafka.

What Kafka does not confirm within DELIVERY_S is dropped and counted, since whoever makes an entry
has its own work to go on with: an operator's change, an alert.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig

DELIVERY_S: Final = 300.0
"""Seconds that Kafka's client tries to write an entry."""
CLOSE_S: Final = 1.0
"""Seconds that `close` waits for what is being written."""


class EntryWriter:
    """Call `poll` now and then: it is what takes Kafka's answers."""

    def __init__(
        self, config: KafkaConfig, client_id: str, topic: str, *, delivery_s: float = DELIVERY_S
    ) -> None:
        self._topic = topic
        self._producer = clients.producer(
            config, client_id, **{"message.timeout.ms": round(delivery_s * 1000)}
        )
        self.written = 0
        """The number of the newest entry that Kafka has of this writer: its offset and one."""
        self._dropped = 0

    @property
    def is_writing(self) -> bool:
        """Does Kafka still have to answer for an entry?"""
        return len(self._producer) > 0

    def put(self, value: bytes) -> bool:
        """Write an entry; False where the client's queue is full, as it is while Kafka is away."""
        try:
            self._producer.produce(
                self._topic, value=value, partition=0, on_delivery=self._on_delivery
            )
        except (BufferError, KafkaException):
            return False
        return True

    def poll(self) -> None:
        """Take the answers that have come."""
        self._producer.poll(0)

    def take_dropped(self) -> int:
        """How many entries were dropped since this was asked last."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def close(self) -> None:
        """Wait for what is being written, CLOSE_S at most."""
        self._producer.flush(CLOSE_S)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.written = max(self.written, int(message.offset() or 0) + 1)
        else:
            self._dropped += 1
