"""The one place that makes Kafka producers, consumers and topics.

Every producer is idempotent with acks=all; every consumer reads committed records only and never commits by itself. So what a reader
of `ew.s.*` or `ew.q.*` sees is final, once and in order: repeats are removed before, never after.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from pydantic import Field

from protocol import topics
from protocol.config import Config
from protocol.errors import LocalError, Unavailable

log = logging.getLogger("edgewake.kafka")

RECORD_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of a Kafka record: a frame of FRAME_BYTES_MAX with its envelope. Larger ones never pass the bridge."""
METADATA_TIMEOUT_S: Final = 10.0


class KafkaConfig(Config):
    """Where Kafka is and how topics are made."""

    bootstrap: str = "127.0.0.1:9092"
    """host:port, several separated by commas."""
    partitions: int = Field(default=2, ge=1, le=256)
    """Partitions of `ew.up` and of every stream when they are made; the unit of parallel work. Cannot be lowered later."""
    replication: int = Field(default=1, ge=1, le=7)
    """Copies of each partition. 1 survives the death of the broker's process, not of its disk; use 3 in production."""
    retention_hours: int = Field(default=168, ge=1)
    """How long streams, results and dead letters are kept."""
    retention_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Bytes kept per partition of streams and results; the older go first and readers are told by a gap."""


def producer(config: KafkaConfig, client_id: str, **more: Any) -> Producer:
    """An idempotent producer, acks=all. `linger.ms` 2 trades 2 ms for fewer requests; poll it for delivery reports."""
    return Producer(
        {
            "bootstrap.servers": config.bootstrap,
            "client.id": client_id,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "compression.type": "lz4",
            "message.max.bytes": RECORD_BYTES_MAX,
            "partitioner": "murmur2_random",
            "error_cb": _say,
            "log_level": 3,
        }
        | more
    )


def transactional_producer(config: KafkaConfig, transactional_id: str, *, timeout_ms: int = 10_000) -> Producer:
    """A producer that writes in transactions; a new one with the same id fences the old. Call `init_transactions` first.

    `timeout_ms`: how long readers wait for the transaction of a process that died and is not replaced.
    """
    return producer(
        config,
        transactional_id,
        **{"transactional.id": transactional_id, "transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms},
    )


def consumer(config: KafkaConfig, client_id: str, *, group: str | None = None, **more: Any) -> Consumer:
    """A consumer of committed records. Without `group` it is assigned by hand and has no offsets of its own."""
    return Consumer(
        {
            "bootstrap.servers": config.bootstrap,
            "client.id": client_id,
            "group.id": group or f"{client_id}-unused",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error" if group is None else "earliest",
            "isolation.level": "read_committed",
            "enable.partition.eof": False,
            "fetch.wait.max.ms": 20,
            "fetch.message.max.bytes": RECORD_BYTES_MAX,
            "queued.max.messages.kbytes": 16_384,
            "error_cb": _say,
            "log_level": 3,
        }
        | more
    )


def admin(config: KafkaConfig) -> AdminClient:
    """A client that makes and describes topics."""
    return AdminClient({"bootstrap.servers": config.bootstrap, "error_cb": _say, "log_level": 3})


def _say(error: KafkaError) -> None:
    log.warning("Kafka: %s", error.str(), extra={"event": "kafka.error", "code": error.name()})


def ensure_topics(config: KafkaConfig, names: Iterable[str], *, client: AdminClient | None = None) -> None:
    """Make the topics that are missing, with the settings of `protocol.topics`; safe to call from several processes at once.

    Raises Unavailable where the broker is away, LocalError where it refuses.
    """
    client = client or admin(config)
    try:
        existing = client.list_topics(timeout=METADATA_TIMEOUT_S).topics
    except KafkaException as error:
        raise Unavailable(f"Kafka at {config.bootstrap}: {error.args[0].str()}") from error
    missing = [_new_topic(config, name) for name in dict.fromkeys(names) if name not in existing]
    if not missing:
        return
    for name, future in client.create_topics(missing, request_timeout=METADATA_TIMEOUT_S).items():
        try:
            future.result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                continue
            raise (Unavailable if error.args[0].retriable() else LocalError)(f"topic {name}: {error.args[0].str()}") from error


def _new_topic(config: KafkaConfig, name: str) -> NewTopic:
    single = name in topics.SINGLE_PARTITION or name.startswith(topics.QUERY_PREFIX)
    settings = {
        "max.message.bytes": str(RECORD_BYTES_MAX),
        "min.insync.replicas": str(max(1, config.replication - 1)),
        "unclean.leader.election.enable": "false",
    }
    if name in topics.COMPACTED:
        settings |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2", "segment.ms": "600000"}
    else:
        settings |= {"retention.ms": str(config.retention_hours * 3_600_000), "retention.bytes": str(config.retention_bytes)}
    return NewTopic(name, num_partitions=1 if single else config.partitions, replication_factor=config.replication, config=settings)


def partition_count(client: AdminClient | Consumer, topic: str) -> int:
    """Partitions of a topic; 0 where it does not exist. Raises Unavailable."""
    try:
        found = client.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics.get(topic)
    except KafkaException as error:
        raise Unavailable(f"Kafka: {error.args[0].str()}") from error
    return 0 if found is None or found.error is not None else len(found.partitions)


def topic_id(client: AdminClient, topic: str) -> str:
    """The topic's id in Kafka (KIP-516): another one means that the topic was deleted and made anew. Raises Unavailable."""
    from confluent_kafka import TopicCollection

    try:
        description = client.describe_topics(TopicCollection([topic]), request_timeout=METADATA_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        raise Unavailable(f"topic {topic}: {error.args[0].str()}") from error
    return str(description.topic_id)


class TableReader:
    """A compacted single-partition topic as a dict that follows the topic: `read_all` once, then `poll` now and then.

    `decode` gets (key, value); what it raises as ValueError is skipped and logged: a record we cannot read stops nobody.
    """

    def __init__(self, config: KafkaConfig, client_id: str, topic: str, *, on_change: Callable[[str, bytes | None], None]) -> None:
        self._topic = topic
        self._on_change = on_change
        self._consumer = consumer(config, client_id)
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._position = 0

    def read_all(self, *, timeout_s: float = 30.0) -> None:
        """Read to the end as it is now. Raises Unavailable."""
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=METADATA_TIMEOUT_S)
        except KafkaException as error:
            raise Unavailable(f"topic {self._topic}: {error.args[0].str()}") from error
        if low > 0:
            self._consumer.seek(TopicPartition(self._topic, 0, low))
        waited = 0.0
        while low < high and self.position() < high:
            if not self.poll(0.1):
                waited += 0.1
            if waited > timeout_s:
                raise Unavailable(f"topic {self._topic}: read to {self._position} of {high} and no further")

    def position(self) -> int:
        """Offset of the next record."""
        offset: int = self._consumer.position([TopicPartition(self._topic, 0)])[0].offset
        return max(offset, 0)

    def poll(self, timeout_s: float) -> int:
        """Pass on what is new; the number of records. Waits `timeout_s` for the first one."""
        count = 0
        for message in self._consumer.consume(500, timeout_s):
            if message.error() is not None:
                continue
            count += 1
            key = message.key()
            self._on_change("" if key is None else key.decode("utf-8", "replace"), message.value())
        return count

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def headers_of(message: Message) -> Mapping[str, bytes]:
    """A record's headers as a dict; the last of equal names wins."""
    return {name: value or b"" for name, value in message.headers() or ()}


def topic_configs(client: AdminClient, topic: str) -> Mapping[str, str]:
    """A topic's settings as the broker has them."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return {name: entry.value for name, entry in client.describe_configs([resource])[resource].result().items()}
