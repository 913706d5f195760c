"""Entries are written, or dropped and counted; nobody waits for them."""

from __future__ import annotations

import uuid

import pytest

from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.ops.history.entry_writer import EntryWriter
from tests.services import wait_until

NOBODY = KafkaConfig(bootstrap="127.0.0.1:9")


def is_done(writer: EntryWriter) -> bool:
    writer.poll()
    return not writer.is_writing


@pytest.mark.services
def test_what_was_written_is_known_by_its_number(kafka_config: KafkaConfig) -> None:
    topic = f"entries-{uuid.uuid4().hex[:8]}"
    topic_admin.ensure_topics(kafka_config, [topic])
    writer = EntryWriter(kafka_config, "test-entries", topic)
    assert (writer.written, writer.is_writing) == (0, False)
    for count in (1, 2):
        assert writer.put(b"an entry")
        wait_until(lambda: is_done(writer), "it is written")
        assert writer.written == count
    assert writer.take_dropped() == 0
    writer.close()


def test_what_kafka_does_not_confirm_in_time_is_dropped_and_counted_once() -> None:
    writer = EntryWriter(NOBODY, "test-entries", "entries", delivery_s=0.1)
    assert all(writer.put(b"an entry") for _ in range(3))
    assert writer.is_writing
    wait_until(lambda: is_done(writer), "it is given up")
    assert (writer.take_dropped(), writer.take_dropped(), writer.written) == (3, 0, 0)
    writer.close()


def test_where_there_is_no_room_the_entry_is_left_to_its_maker() -> None:
    writer = EntryWriter(NOBODY, "test-entries", "entries", delivery_s=0.5)
    count = 0
    while writer.put(b""):
        count += 1
        assert count < 1_000_000
    assert count > 1000
    wait_until(lambda: is_done(writer), "they are given up")
    assert writer.take_dropped() == count, "what had no room is not counted here"
    assert writer.put(b"again")
    writer.close()
