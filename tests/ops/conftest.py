from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Producer

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.errors import RejectReason
from edgewake.protocol.frames import record as records
from edgewake.protocol.frames.ack import AckToken
from edgewake.protocol.frames.dead_letter import DeadLetter
from edgewake.protocol.frames.frame import encode
from edgewake.protocol.frames.record import (
    ORIGIN_HEADER,
    PLACEMENT_HEADER,
    Discipline,
    Mode,
    Placement,
    origin,
)
from tests.ops.builders import frame
from tests.ops.service import Ops, running
from tests.services import Kafka

_numbers = itertools.count(1)
T0 = time.time_ns() // 1_000_000 - 3_600_000
"""An hour ago. The Kafka is shared, and bridges accept nothing while records on `ew.up` wait for
half of their retention."""
"""When what is written here happens."""


@pytest.fixture(scope="package")
def ops(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    """A server that is configured by nothing, for the files that start none of their own."""
    with running(kafka.bootstrap, tmp_path_factory.mktemp("ops")) as service:
        yield service


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Names that no other test has."""
    return lambda prefix: f"{prefix}_{os.getpid()}_{next(_numbers)}"


@dataclass
class Writer:
    """Writes what bridges and the sequencer write."""

    config: KafkaConfig
    producer: Producer
    kept_at: dict[tuple[str, int, int], int] = field(default_factory=dict)
    """Topic, partition, offset → the record's timestamp, by Kafka's clock where it is the
    topic's."""

    def put(
        self,
        topic: str,
        key: str,
        value: bytes | None,
        headers: list[tuple[str, bytes]] | None = None,
        **more: int,
    ) -> tuple[int, int]:
        """(partition, offset) of one record."""
        topic_admin.ensure_topics(self.config, [topic])
        places: list[tuple[int, int]] = []

        def on_delivery(error: object, message: object) -> None:
            assert error is None, error
            places.append((message.partition(), message.offset()))
            self.kept_at[topic, *places[-1]] = message.timestamp()[1]

        self.producer.produce(
            topic, key=key, value=value, headers=headers or [], on_delivery=on_delivery, **more
        )
        assert self.producer.flush(10) == 0
        return places[0]

    def dead_letter(
        self, device: str, payload: bytes, reason: RejectReason = RejectReason.JSON
    ) -> int:
        """Offset of a new dead letter."""
        letter = DeadLetter(
            reason=reason,
            detail="why",
            topic=f"ew/v1/{device}/up/s",
            part="bridge-1",
            received_at=T0,
        )
        return self.put(topics.DEAD, device, payload, letter.headers())[1]

    def dead_letters(self, device: str, count: int) -> list[int]:
        """Offsets of many new dead letters."""
        letter = DeadLetter(
            reason=RejectReason.JSON, detail="why", topic="t", part="bridge-1", received_at=T0
        )
        return self._put_many(
            topics.DEAD,
            [{"key": device, "value": b"x", "headers": letter.headers(), "partition": 0}] * count,
        )

    def fill(self, topic: str, partition: int, times: Iterable[int]) -> None:
        """Records of somebody else, one at each time."""
        topic_admin.ensure_topics(self.config, [topic])
        self._put_many(
            topic,
            [
                {"key": "else", "value": b"{}", "partition": partition, "timestamp": at}
                for at in times
            ],
        )

    def _put_many(self, topic: str, records: Sequence[Mapping[str, Any]]) -> list[int]:
        offsets: list[int] = []
        for one in records:
            self.producer.produce(
                topic, on_delivery=lambda _, message: offsets.append(message.offset()), **one
            )
            self.producer.poll(0)
        assert self.producer.flush(30) == 0
        return offsets

    def received(
        self, device: str, stream: str, number: int, *, discipline: Discipline = Discipline.ORDERED
    ) -> AckToken:
        """A frame as a bridge keeps it."""
        placement = Placement(discipline, stream, 1, number, number, number, 1)
        headers = [(PLACEMENT_HEADER, placement.encode())]
        return AckToken(*self.put(topics.UP, device, self._value(device, stream, number), headers))

    def received_at(self, token: AckToken) -> int:
        """When Kafka kept the frame of a token, ms."""
        return self.kept_at[topics.UP, token.partition, token.offset]

    def sequenced(self, device: str, stream: str, number: int, token: AckToken) -> tuple[int, int]:
        """The same frame as the sequencer passes it on."""
        headers = [(ORIGIN_HEADER, origin(token.partition, token.offset))]
        value = self._value(device, stream, number)
        return self.put(
            topics.stream_topic(stream),
            device,
            value,
            headers,
            timestamp=self.received_at(token),
            partition=self.stream_partition(token),
        )

    def stream_partition(self, token: AckToken) -> int:
        """Where on a stream's topic the sequencer puts the frame of a token."""
        return topics.stream_partition(token.partition, self.config.partitions)

    def _value(self, device: str, stream: str, number: int) -> bytes:
        return records.encode(
            device=device,
            stream=stream,
            mode=Mode.ACK,
            sent_at=None,
            received_at=T0,
            frame_bytes=encode(frame(number)),
        )


@pytest.fixture
def writer(kafka_config: KafkaConfig) -> Writer:
    topic_admin.ensure_topics(kafka_config, [topics.UP, topics.DEAD])
    return Writer(kafka_config, clients.producer(kafka_config, "test-ops"))
