"""Streams and results of their own on the real Kafka, for tests that read them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import watermarks
from edgewake.protocol import topics
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frames import frame, record
from edgewake.protocol.frames.frame import Frame, Gap
from edgewake.protocol.frames.record import Mode
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.ops import result
from tests.services import PATIENCE_S, pause_s, wait_until

NOW_MS = 1_790_000_000_000
DEADLINE_S = PATIENCE_S


def unique(prefix: str) -> str:
    """A stream or query name that no other test uses."""
    return f"{prefix}_{secrets.token_hex(5)}"


class VisibleCommit:
    """Ends a transaction, and waits until readers of committed records see what it wrote.

    Kafka confirms a transaction when its end is decided; the markers that let readers pass are
    written after that. Who asks for the end of the topic between the two gets the end before the
    transaction.
    """

    def __init__(self, config: KafkaConfig, producer: Producer, topic: str) -> None:
        self._config = config
        self._producer = producer
        self._topic = topic
        self._reader: Consumer | None = None
        self._ends: dict[int, int] = {}

    def written(self, error: KafkaError | None, message: Message) -> None:
        """For `on_delivery`."""
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._ends[partition] = offset + 1

    def __call__(self) -> None:
        """Commit."""
        self._producer.commit_transaction(30)
        reader = self._reader = self._reader or clients.consumer(self._config, "test-visible")
        for partition, end in self._ends.items():
            wait_until(
                lambda p=partition, end=end: watermarks(reader, self._topic, p)[1] >= end,
                "it is visible",
            )  # type: ignore[misc]
        self._ends.clear()

    def close(self) -> None:
        """Leave Kafka."""
        if self._reader is not None:
            self._reader.close()


class Feed:
    """Writes a stream of its own, in transactions as the sequencer does."""

    def __init__(
        self, config: KafkaConfig, *, partitions: int = 2, name: str | None = None
    ) -> None:
        self.config = config.model_copy(update={"partitions": partitions})
        self.name = name or unique("feed")
        self.topic = topics.stream_topic(self.name)
        self._seq: dict[str, int] = {}
        wait_until(self._has_topic, "its topic is there")
        self._producer = clients.transactional_producer(
            self.config, f"tx-{self.name}-{secrets.token_hex(3)}"
        )
        clients.fence(self._producer, 30)
        self._commit = VisibleCommit(config, self._producer, self.topic)

    def _has_topic(self) -> bool:
        """A Kafka that has just started may create a topic and list it seconds later."""
        try:
            topic_admin.ensure_topics(self.config, [self.topic])
        except Unavailable:
            return False
        return True

    def send(
        self,
        device: str = "dev-1",
        n: int = 1,
        *,
        frames: int = 1,
        fields: Mapping[str, list[Any]] | None = None,
    ) -> None:
        """One transaction of `frames` frames of `n` readings: field `n` is the reading's number,
        unless `fields` are given.
        """
        self._producer.begin_transaction()
        for _ in range(frames):
            self._produce(device, n, fields)
        self._commit()

    def send_of(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """One transaction with a reading of each of these devices, by its fields."""
        self._producer.begin_transaction()
        for device, row in rows.items():
            self._produce(device, 1, {name: [value] for name, value in row.items()})
        self._commit()

    def close(self) -> None:
        """Leave Kafka."""
        self._producer.close()
        self._commit.close()

    def abort(self, n: int = 3) -> None:
        """A transaction whose records nobody may ever see."""
        self._producer.begin_transaction()
        for partition in range(self.config.partitions):
            for _ in range(n):
                self._producer.produce(self.topic, b"never", partition=partition)
        self._producer.flush(10)
        self._producer.abort_transaction(30)

    def gap(self, device: str, count: int) -> None:
        """What a device says it lost."""
        first = self._seq.get(device, 1)
        self._seq[device] = first + count
        lost = Frame(1, first, first, (), {}, gap=Gap("quota", count), first_frame=first)
        self._producer.begin_transaction()
        self._put(device, frame.encode(lost))
        self._commit()

    def trim(self, partition: int, before: int) -> None:
        """Make retention pass: what is before `before` is gone."""
        client = clients.admin(self.config)  # must live until the answer comes
        for future in client.delete_records(
            [TopicPartition(self.topic, partition, before)]
        ).values():
            future.result(30)

    def _produce(self, device: str, n: int, fields: Mapping[str, list[Any]] | None) -> None:
        first = self._seq.get(device, 1)
        self._seq[device] = first + n
        columns = fields or {"n": [float(first + i) for i in range(n)]}
        self._put(
            device,
            frame.encode(Frame(1, first, first, [NOW_MS + first + i for i in range(n)], columns)),
        )

    def _put(self, device: str, frame_bytes: bytes) -> None:
        value = record.encode(
            device=device,
            stream=self.name,
            mode=Mode.ACK,
            sent_at=NOW_MS,
            received_at=NOW_MS,
            frame_bytes=frame_bytes,
        )
        self._producer.produce(self.topic, value, key=device, on_delivery=self._commit.written)


class QueryFeed:
    """Writes a query's results, as the analysis does."""

    def __init__(self, config: KafkaConfig) -> None:
        self.name = unique("query")
        self.topic = topics.query_topic(self.name, 1)
        topic_admin.ensure_topics(config, [self.topic])
        self._producer = clients.transactional_producer(config, f"tx-{self.name}")
        clients.fence(self._producer, 30)
        self._commit = VisibleCommit(config, self._producer, self.topic)

    def close(self) -> None:
        """Leave Kafka."""
        self._producer.close()
        self._commit.close()

    def batch(self, revision: int, rows: list[dict[str, Any]], watermark: int) -> None:
        """A micro-batch: results, then the watermark."""
        self._producer.begin_transaction()
        for row in rows:
            value = orjson.dumps({"query": self.name, "revision": revision, "final": False, **row})
            self._producer.produce(self.topic, value, key=b"k", on_delivery=self._commit.written)
        mark = result.watermark_value(self.name, watermark, revision)
        self._producer.produce(
            self.topic, mark, key=result.WATERMARK_KEY, on_delivery=self._commit.written
        )
        self._commit()


async def eventually(condition: Any, what: str, *, timeout_s: float = DEADLINE_S) -> None:
    """Wait for a condition without blocking the loop."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < timeout_s, f"not within {timeout_s:.0f} s: {what}"
        await asyncio.sleep(pause_s(waited))


def declare(config: KafkaConfig, stream: Stream) -> None:
    """Write a stream's row of the catalogue, as the bridges do."""
    producer = clients.producer(config, "test-catalogue")
    producer.produce(topics.STREAMS, key=stream.name, value=stream.model_dump_json().encode())
    assert producer.flush(10) == 0
