"""Whoever asked for offsets before Kafka was restarted is answered after it, too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from edgewake.cloud.kafka import clients, offsets, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.up_places import UpPlaces
from edgewake.cloud.log.ask_kafka import AskKafka
from edgewake.cloud.log.subscription import Source
from edgewake.protocol import topics
from edgewake.protocol.clock import SystemClock
from edgewake.protocol.errors import Unavailable
from tests.services import Kafka, wait_until


def error_of(question: Callable[[], object]) -> int:
    """What Kafka says against it; 0: it answers."""
    try:
        question()
    except KafkaException as error:
        return int(error.args[0].code())
    except Unavailable:
        return int(KafkaError.UNKNOWN)
    return 0


def ask_once(client: AdminClient) -> None:
    """The question as librdkafka has it."""
    (future,) = client.list_offsets(
        {TopicPartition(topics.UP, 0): OffsetSpec.latest()}, request_timeout=5
    ).values()
    future.result()


@pytest.mark.long
async def test_who_asked_for_offsets_is_answered_after_kafka_was_restarted(
    own_kafka: Kafka,
) -> None:
    config = KafkaConfig(bootstrap=own_kafka.bootstrap)
    topic_admin.ensure_topics(config, [topics.UP])
    control, client = clients.admin(config), clients.admin(config)
    places, asking = UpPlaces(config, "test-places"), AskKafka(config, SystemClock())
    source, loop = (
        Source("up", topics.UP, False, "", topics.UP_PARTITIONS),
        asyncio.get_running_loop(),
    )
    questions: dict[str, Callable[[], object]] = {
        "ranges": lambda: offsets.ranges(client, {topics.UP: topics.UP_PARTITIONS}),
        "places": places.ends,
        "access": lambda: asyncio.run_coroutine_threadsafe(
            asking.bounds((source,), fresh=True), loop
        ).result(),
    }

    def all_answer() -> None:
        for name, question in questions.items():
            wait_until(lambda question=question: error_of(question) == 0, f"{name} answers")  # type: ignore[misc]

    wait_until(lambda: error_of(lambda: ask_once(control)) == 0, "the control answers")
    await asyncio.to_thread(all_answer)
    own_kafka.process.kill()
    own_kafka.start()
    wait_until(
        lambda: error_of(lambda: ask_once(clients.admin(config))) == 0,
        "Kafka answers who did not ask before",
    )
    await asyncio.to_thread(all_answer)
    assert error_of(lambda: ask_once(control)) == KafkaError.FENCED_LEADER_EPOCH, (
        "the control: librdkafka asks a leader that is no more"
    )
    places.close()
