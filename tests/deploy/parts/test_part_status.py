"""The state of the parts as a stream of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import partition_count
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.deploy.parts.part_status import DECLARED, publish
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.frames import record
from edgewake.protocol.frames.field_type import types_of
from edgewake.protocol.frames.stream import Stream
from edgewake.protocol.ops.part_status import SUPERVISOR, record_of
from tests.deploy.children import part, supervisor, until
from tests.services import Kafka, run_kafka, wait_until


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One of our own: the stream's name is fixed."""
    with run_kafka(tmp_path_factory.mktemp("kafka")) as service:
        yield service


def states(config: KafkaConfig) -> dict[str, dict[str, object]]:
    """The last reading of each part."""
    found: dict[str, dict[str, object]] = {}

    def on_change(_: str, value: bytes | None) -> None:
        assert value is not None
        for reading in record.readings(record.decode(value)):
            found[str(reading["part"])] = reading

    reader = TableReader(config, "test-parts", {topics.PARTS: on_change})
    try:
        reader.read_all()
    finally:
        reader.close()
    return found


@pytest.mark.long
async def test_the_state_of_each_part_is_published_also_when_kafka_comes_late(
    tmp_path: Path, own_kafka: Kafka
) -> None:
    config = KafkaConfig(bootstrap=own_kafka.bootstrap)
    topic_admin.ensure_topics(config, [topics.STREAMS])
    own_kafka.process.kill()
    watched, stop, clock = (
        supervisor(tmp_path, part("one"), part("two")),
        asyncio.Event(),
        SystemClock(),
    )
    keepers = watched.keepers.values()
    running = asyncio.create_task(
        watched.run(stop, alongside=[lambda: publish(keepers, own_kafka.bootstrap, clock)])
    )
    await until(lambda: all(keeper.settled.is_set() for keeper in keepers), "both are ready")
    await asyncio.to_thread(own_kafka.start)
    client, found = clients.admin(config), dict[str, dict[str, object]]()

    def is_published() -> bool:
        try:
            found.update(states(config) if partition_count(client, topics.PARTS) else {})
        except Unavailable:  # it has only just come
            return False
        return len(found) == 2

    await asyncio.to_thread(wait_until, is_published, "the state of both parts can be read")
    stop.set()
    await asyncio.wait_for(running, 20)
    assert {name: reading["state"] for name, reading in found.items()} == {
        "one": "ready",
        "two": "ready",
    }
    one = found["one"]
    assert one["restarts"] == 0
    assert isinstance(one["rss_mib"], float)
    assert one["rss_mib"] > 1
    assert abs(int(str(one["t"])) - clock.now_ms()) < 60_000
    assert declared(config) == DECLARED


def declared(config: KafkaConfig) -> Stream:
    rows: dict[str, bytes | None] = {}
    reader = TableReader(config, "test-streams", {topics.STREAMS: rows.__setitem__})
    try:
        reader.read_all()
    finally:
        reader.close()
    return Stream.model_validate_json(rows["part_status"] or b"")


def test_a_line_has_the_declared_fields() -> None:
    fields = {
        "part": "a",
        "state": "ready",
        "pid": 1,
        "restarts": 0,
        "rss_mib": 1.5,
        "cpu_percent": 0.0,
        "uptime_s": 2.0,
        "version": "0.1",
        "t": 1_790_000_000_000,
    }
    frame = record.decode(record_of(SUPERVISOR, fields, 7)).frame
    assert types_of(frame.fields) == {name: info.type for name, info in DECLARED.fields.items()}
