"""The one place that makes Kafka producers, consumers and topics.

Every producer is idempotent with acks=all; every consumer reads committed records only and never commits by itself. So what a reader
of `ew.s.*` or `ew.q.*` sees is final, once and in order: repeats are removed before, never after.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from pydantic import Field

from edgewake.protocol import topics
from edgewake.protocol.config import Config
from edgewake.protocol.errors import EdgewakeError, LocalError, Unavailable

log = logging.getLogger("edgewake.kafka")

RECORD_BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of a Kafka record: a frame of FRAME_BYTES_MAX with its envelope. Larger ones never pass the bridge."""
METADATA_TIMEOUT_S: Final = 4.0
"""Seconds for one question to Kafka; below the five in which a part must stop."""


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
            "log_level": 2,  # `error_cb` tells what matters, less often
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
        **{
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms,
            "linger.ms": 0,  # a commit flushes anyway
            # The broker still writes the last transaction's markers when the next one begins and says "concurrent transactions":
            # with the default of 100 ms a busy writer commits 10 times a second, with 5 ms 120 times.
            "retry.backoff.ms": 5,
        },
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
            # A reader that filled its queue and emptied it is otherwise left without records for up to a second.
            "fetch.queue.backoff.ms": 5,
            "fetch.message.max.bytes": RECORD_BYTES_MAX,
            "queued.max.messages.kbytes": 16_384,
            "error_cb": _say,
            "log_level": 2,  # `error_cb` tells what matters, less often
        }
        | more
    )


def admin(config: KafkaConfig) -> AdminClient:
    """A client that makes and describes topics."""
    return AdminClient({"bootstrap.servers": config.bootstrap, "error_cb": _say, "log_level": 2})


SAY_AGAIN_S: Final = 30.0
"""Seconds before the same trouble is logged again: librdkafka tells of every failed attempt."""
_said: dict[str, float] = {}


def _say(error: KafkaError) -> None:
    now = time.monotonic()
    if now - _said.get(error.name(), -SAY_AGAIN_S) >= SAY_AGAIN_S:
        _said[error.name()] = now
        log.warning("Kafka: %s", error.str(), extra={"event": "kafka.error", "code": error.name()})


def is_fenced(error: KafkaError) -> bool:
    """Has another process with our name taken over? Then this one must end."""
    return error.code() in _FENCED


_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)


def ensure_topics(config: KafkaConfig, names: Iterable[str], *, client: AdminClient | None = None) -> None:
    """Make the topics that are missing, with the settings of `edgewake.protocol.topics`; safe to call from several processes at once.

    Raises Unavailable where the broker is away, LocalError where it refuses.
    """
    client = admin(config) if client is None else client  # an AdminClient has a length, so it may be false
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
            raise _refused_or_away(name, error.args[0]) from error


def _refused_or_away(topic: str, error: KafkaError) -> EdgewakeError:
    """A broker that is slow or away is no refusal; librdkafka does not call its own time-outs retriable."""
    is_away = error.retriable() or error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    return (Unavailable if is_away else LocalError)(f"topic {topic}: {error.str()}")


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


def ensure_partitions(config: KafkaConfig, names: Iterable[str], count: int, *, client: AdminClient | None = None) -> None:
    """Make topics with at least `count` partitions, and add what an older one lacks. Raises Unavailable or LocalError."""
    client = client or admin(config)
    names = list(names)
    ensure_topics(config.model_copy(update={"partitions": count}), names, client=client)
    found = partition_counts(client)
    narrow = [NewPartitions(name, count) for name in names if 0 < found.get(name, 0) < count]
    for name, future in (client.create_partitions(narrow, request_timeout=METADATA_TIMEOUT_S) if narrow else {}).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # another process was faster
                raise _refused_or_away(name, error.args[0]) from error


def partition_counts(client: AdminClient | Consumer) -> dict[str, int]:
    """Partitions of every topic there is. Raises Unavailable."""
    try:
        found = client.list_topics(timeout=METADATA_TIMEOUT_S).topics
    except KafkaException as error:
        raise Unavailable(f"Kafka: {error.args[0].str()}") from error
    return {name: len(topic.partitions) for name, topic in found.items()}


def partition_count(client: AdminClient | Consumer, topic: str) -> int:
    """Partitions of a topic; 0 where it does not exist. Raises Unavailable."""
    try:
        found = client.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics.get(topic)
    except KafkaException as error:
        raise Unavailable(f"Kafka: {error.args[0].str()}") from error
    return 0 if found is None or found.error is not None else len(found.partitions)


def learn(consumer: Consumer, topic: str) -> None:
    """Ask for a topic that is to be assigned: by itself librdkafka looks only once a second for one that it does not know.

    Takes some milliseconds, without Kafka METADATA_TIMEOUT_S. Not to get an answer is no error.
    """
    try:
        consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        log.debug("topic %s: %s", topic, error.args[0].str())


def topic_id(client: AdminClient, topic: str) -> str:
    """The topic's id in Kafka (KIP-516): another one means that the topic was deleted and made anew. Raises Unavailable."""
    from confluent_kafka import TopicCollection

    try:
        description = client.describe_topics(TopicCollection([topic]), request_timeout=METADATA_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        raise Unavailable(f"topic {topic}: {error.args[0].str()}") from error
    return str(description.topic_id)


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


TABLE_BATCH: Final = 500
"""Records that one `poll` of a table passes on at most."""
_TABLE_CONSUMER: Final[dict[str, Any]] = {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
_END_CONSUMER: Final[dict[str, Any]] = {"isolation.level": "read_uncommitted"}


class TableReader:
    """A compacted topic's partition as a dict that follows it: `read_all` once, then `poll` now and then.

    `on_change` gets key and value (None: deleted); what it raises as ValueError is logged and skipped: a record we cannot read stops
    nobody. Not for several threads.
    """

    def __init__(
        self, config: KafkaConfig, client_id: str, topic: str, *, on_change: Callable[[str, bytes | None], None], partition: int = 0
    ) -> None:
        self._topic, self._partition = topic, partition
        self._on_change = on_change
        # Transactions end in markers that take an offset and are no record, so a count of records never reaches the end; only the
        # consumer's own end-of-partition event says where it stands.
        self._consumer = consumer(config, client_id, **_TABLE_CONSUMER)
        self._uncommitted = consumer(config, client_id, **_END_CONSUMER)
        self._consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        self._position = 0
        self.unreadable = 0
        """Records that were skipped; the first one is logged."""

    def read_all(self, *, timeout_s: float = 30.0) -> None:
        """Read to the end as it is now, waiting for transactions that are open there. Raises Unavailable."""
        deadline = time.monotonic() + timeout_s
        end = self._end(timeout_s)
        while self._position < end:
            if time.monotonic() > deadline:
                raise Unavailable(f"topic {self._topic}: read to {self._position} of {end} and no further")
            self.poll(0.1)

    def _end(self, timeout_s: float) -> int:
        """Offset after the last record, also of those that an open transaction still hides."""
        return watermarks(self._uncommitted, self._topic, self._partition, patience_s=timeout_s)[1]

    def position(self) -> int:
        """Offset of the next record."""
        return self._position

    def poll(self, timeout_s: float) -> int:
        """Pass on what is new; the number of records. Waits `timeout_s` for the first one."""
        count = 0
        # `consume` waits for its whole number; so one is waited for, and what else is there is taken without waiting.
        first = self._consumer.poll(timeout_s)
        for message in [] if first is None else [first, *self._consumer.consume(TABLE_BATCH, 0)]:
            if (error := message.error()) is not None:
                self._on_event(message, error)
                continue
            count += 1
            self._position = message.offset() + 1
            key = message.key()
            try:
                self._on_change("" if key is None else key.decode("utf-8", "replace"), message.value())
            except ValueError as problem:
                self.unreadable += 1
                level = logging.WARNING if self.unreadable == 1 else logging.DEBUG
                log.log(level, "topic %s, offset %d: %s", self._topic, message.offset(), problem, extra={"event": "kafka.unreadable_row"})
        return count

    def _on_event(self, message: Message, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._position = max(self._position, message.offset())

    def close(self) -> None:
        """Leave."""
        self._consumer.close()
        self._uncommitted.close()


def headers_of(message: Message) -> Mapping[str, bytes]:
    """A record's headers as a dict; the last of equal names wins."""
    return {name: value or b"" for name, value in message.headers() or ()}


def topic_configs(client: AdminClient, topic: str) -> Mapping[str, str]:
    """A topic's settings as the broker has them."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return {name: entry.value for name, entry in client.describe_configs([resource])[resource].result().items()}
