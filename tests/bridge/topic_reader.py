"""Reads a topic from its beginning, and goes on where it was when it is asked again: a test that
waits reads every record once.
"""

from __future__ import annotations

from types import TracebackType

from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition

from edgewake.cloud.kafka import clients, metadata
from edgewake.cloud.kafka.config import KafkaConfig
from tests.services import PATIENCE_S

WAIT_MS = 200
"""How long Kafka holds back a fetch that finds nothing. A test reads now and then; one that asks
for 64 partitions fifty times a second, as consumers do that are in a hurry, keeps Kafka busier than
the parts under test."""


class TopicReader:
    """`with` it; `read()` gives all records of the topic as it is now, in the order of each
    partition.
    """

    def __init__(
        self, config: KafkaConfig, topic: str, *, committed: bool = True, device: str | None = None
    ) -> None:
        """`device`: keep its records alone."""
        isolation = "read_committed" if committed else "read_uncommitted"
        more = {
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": WAIT_MS,
        }
        self._consumer = clients.consumer(config, "test-reader", **more)
        self._topic, self._key = topic, None if device is None else device.encode()
        self._unread: set[int] = set()
        """Partitions whose end was not reached yet."""
        self._is_assigned = False
        self._found: list[Message] = []

    def read(self) -> list[Message]:
        """Everything that came up to now, of a partition with something new up to its end.

        Nothing while there is no such topic.
        """
        if not self._is_assigned:
            partitions = range(metadata.partition_count(self._consumer, self._topic))
            self._consumer.assign(
                [TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in partitions]
            )
            self._unread, self._is_assigned = set(partitions), len(partitions) > 0
        ended: set[int] = set()
        while (message := self._consumer.poll(PATIENCE_S if self._unread else 0)) is not None:
            self._take(message, ended)
            if ended and not self._unread:
                break
        assert not self._unread, (
            f"{self._topic}: no end of {self._unread} within {PATIENCE_S:.0f} s"
        )
        return list(self._found)

    def _take(self, message: Message, ended: set[int]) -> None:
        partition = message.partition()
        if message.error() is None:
            if partition not in ended:
                self._unread.add(partition)
            if self._key is None or message.key() == self._key:
                self._found.append(message)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            self._unread.discard(partition)
            ended.add(partition)
        else:
            raise AssertionError(message.error())

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()
