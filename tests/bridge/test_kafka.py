"""The one place that makes Kafka clients, against a real Kafka: tables end where transactions end,
topics are made once.
"""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from edgewake.cloud.kafka import clients, metadata, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.protocol import topics
from edgewake.protocol.errors import LocalError, Unavailable
from tests.services import PATIENCE_S, Kafka, wait_until


@pytest.fixture
def config(own_kafka: Kafka) -> KafkaConfig:
    return KafkaConfig(bootstrap=own_kafka.bootstrap)


@pytest.fixture
def table(config: KafkaConfig) -> str:
    """A topic of one partition."""
    name = f"ew.q.table_{uuid.uuid4().hex}"
    topic_admin.ensure_topics(config, [name])
    return name


def transactional(config: KafkaConfig) -> Producer:
    producer = clients.transactional_producer(config, f"test-{uuid.uuid4().hex}", timeout_ms=60_000)
    clients.fence(producer, 30)
    return producer


def rows(
    config: KafkaConfig, table: str, *, timeout_s: float = PATIENCE_S
) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    reader = TableReader(config, "test-table", {table: found.__setitem__})
    try:
        reader.read_all(idle_s=timeout_s)
    finally:
        reader.close()
    return found


def test_a_table_is_read_for_as_long_as_records_come(config: KafkaConfig, table: str) -> None:
    """The bound is on the silence, not on the whole: rows that take 5 ms each take longer together
    (control).
    """
    producer = clients.producer(config, "test-large")
    for i in range(1500):
        producer.produce(table, b"1", b"%d" % i)
    assert producer.flush(60) == 0
    found: list[str] = []

    def apply(key: str, _value: bytes | None) -> None:
        found.append(key)
        time.sleep(0.005)

    idle_s, began = 5.0, time.monotonic()
    reader = TableReader(config, "test-table", {table: apply})
    try:
        reader.read_all(idle_s=idle_s)
    finally:
        reader.close()
    assert len(found) == 1500
    assert time.monotonic() - began > idle_s


def test_an_empty_table_is_read_at_once(config: KafkaConfig, table: str) -> None:
    assert rows(config, table) == {}


def test_a_table_that_ends_with_transaction_markers_is_read_to_its_end(
    config: KafkaConfig, table: str
) -> None:
    """The markers take offsets that no record fills; a count of records would wait for ever."""
    producer = transactional(config)
    for i in range(3):
        producer.begin_transaction()
        producer.produce(table, b"%d" % i, "key")
        producer.commit_transaction(30)
    assert rows(config, table) == {"key": b"2"}


def test_rows_of_an_aborted_transaction_are_not_read(config: KafkaConfig, table: str) -> None:
    producer = transactional(config)
    for value, end in (
        (b"kept", producer.commit_transaction),
        (b"aborted", producer.abort_transaction),
    ):
        producer.begin_transaction()
        producer.produce(table, value, "key")
        producer.flush(30)
        end(30)
    assert rows(config, table) == {"key": b"kept"}


def test_reading_waits_for_an_open_transaction_to_end(config: KafkaConfig, table: str) -> None:
    """A reader that stopped before it would miss what is committed a moment later."""
    producer = transactional(config)
    producer.begin_transaction()
    producer.produce(table, b"1", "key")
    producer.flush(30)
    with pytest.raises(Unavailable, match="and no record for"):
        rows(config, table, timeout_s=0.5)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(rows, config, table)
        producer.commit_transaction(30)
        assert reading.result(30) == {"key": b"1"}


@pytest.mark.long
def test_several_tables_are_read_by_one_consumer_each_to_its_end(config: KafkaConfig) -> None:
    """One has records, one nothing, one ends with a marker; and what is written to any of them
    later is followed.
    """
    names = [f"ew.q.table_{uuid.uuid4().hex}" for _ in range(3)]
    topic_admin.ensure_topics(config, names)
    found: dict[str, dict[str, bytes | None]] = {name: {} for name in names}
    plain, committing = clients.producer(config, "test"), transactional(config)
    committing.begin_transaction()
    for i in range(3):
        plain.produce(names[0], b"%d" % i, b"%d" % i)
        committing.produce(names[2], b"%d" % i, "key")
    assert plain.flush(30) == 0
    reader = TableReader(
        config, "test-tables", {name: rows.__setitem__ for name, rows in found.items()}
    )
    with pytest.raises(Unavailable, match=f"{names[2]} is read to 0 of 3, and no record for"):
        reader.read_all(idle_s=0.5)
    committing.commit_transaction(30)
    reader.read_all()
    assert list(found.values()) == [{"0": b"0", "1": b"1", "2": b"2"}, {}, {"key": b"2"}]
    for name in names:
        plain.produce(name, b"new", "later")
    assert plain.flush(30) == 0
    wait_until(
        lambda: (reader.poll(0.1), all(rows.get("later") == b"new" for rows in found.values()))[1],
        "all three are followed",
    )
    reader.close()


def test_a_table_follows_its_topic_and_deletions(config: KafkaConfig, table: str) -> None:
    found: dict[str, bytes | None] = {}
    reader = TableReader(config, "test-table", {table: found.__setitem__})
    reader.read_all()
    producer = clients.producer(config, "test")
    producer.produce(table, b"1", "a")
    producer.produce(table, None, "b")
    producer.flush(30)
    wait_until(lambda: (reader.poll(0.1), len(found) == 2)[1], "both changes arrive")
    reader.close()
    assert found == {"a": b"1", "b": None}


def test_a_row_that_cannot_be_read_is_counted_and_skipped(config: KafkaConfig, table: str) -> None:
    producer = clients.producer(config, "test")
    for value in (b"1", b"x", b"2"):
        producer.produce(table, value, "key")
    producer.flush(30)
    found: list[int] = []
    reader = TableReader(
        config, "test-table", {table: lambda _key, value: found.append(int(value or b""))}
    )
    reader.read_all()
    reader.close()
    assert (found, reader.unreadable) == ([1, 2], 1)


def test_a_table_is_read_from_its_first_kept_record_on(config: KafkaConfig, table: str) -> None:
    producer = clients.producer(config, "test")
    for i in range(3):
        producer.produce(table, b"%d" % i, b"%d" % i)
    producer.flush(30)
    client = clients.admin(config)
    (removed,) = client.delete_records([TopicPartition(table, 0, 2)]).values()
    assert removed.result(PATIENCE_S).low_watermark == 2
    assert rows(config, table) == {"2": b"2"}


def test_topics_are_made_once_by_many_at_once(config: KafkaConfig) -> None:
    names = [f"ew.s.race_{uuid.uuid4().hex[:8]}" for _ in range(3)]
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        topic_admin.ensure_topics(config, names)

    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(make) for _ in range(8)]:
            future.result()
    client = clients.admin(config)
    assert [metadata.partition_count(client, name) for name in names] == [2, 2, 2]


def test_topics_have_the_settings_of_their_kind(config: KafkaConfig) -> None:
    topic_admin.ensure_topics(config, [topics.DEVICES, topics.UP])
    client = clients.admin(config)
    wait_until(
        lambda: all(metadata.topic_configs(client, name) for name in (topics.DEVICES, topics.UP)),
        "the broker knows its new topics",
    )
    assert metadata.topic_configs(client, topics.DEVICES)["cleanup.policy"] == "compact"
    up = metadata.topic_configs(client, topics.UP)
    assert (up["retention.ms"], up["retention.bytes"]) == (str(24 * 3_600_000), "-1"), (
        "what was acknowledged goes by time only"
    )
    assert metadata.partition_count(client, topics.UP) == 64
    assert metadata.partition_count(client, topics.DEVICES) == 1


def test_ew_up_with_another_number_of_partitions_is_refused_with_one_sentence(
    config: KafkaConfig,
) -> None:
    """The order of each device is kept by partition: another number would be another order, and no
    configuration changes it.
    """
    client = clients.admin(config)
    for name, count in topics.FIXED_PARTITIONS.items():
        other = f"{name}.other_{uuid.uuid4().hex[:8]}"
        client.create_topics([NewTopic(other, num_partitions=2)])[other].result()
        wait_until(lambda name=other: metadata.partition_count(client, name) == 2, "it is there")  # type: ignore[misc]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(topics.FIXED_PARTITIONS, other, count)
            with pytest.raises(
                LocalError, match=rf"has 2 partitions, expected {count}: .* docs/operations.md"
            ):
                topic_admin.ensure_topics(config, [other])


def test_a_topic_with_too_few_partitions_gets_more(config: KafkaConfig) -> None:
    name = f"ew.s.grow_{uuid.uuid4().hex[:8]}"
    topic_admin.ensure_topics(config.model_copy(update={"partitions": 1}), [name])
    topic_admin.ensure_partitions(config, [name], 3)
    client = clients.admin(config)
    wait_until(lambda: metadata.partition_count(client, name) == 3, "three partitions")


def test_kafka_that_is_away_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    # It would be waited out: nobody answers.
    monkeypatch.setattr(topic_admin, "METADATA_TIMEOUT_S", 0.2)
    with pytest.raises(Unavailable, match="Kafka at"):
        topic_admin.ensure_topics(KafkaConfig(bootstrap="127.0.0.1:1"), ["ew.up"])


def test_a_topic_that_kafka_refuses_is_our_fault(config: KafkaConfig) -> None:
    with pytest.raises(LocalError, match="topic ew"):
        topic_admin.ensure_topics(config, ["ew.s." + "r" * 300])
