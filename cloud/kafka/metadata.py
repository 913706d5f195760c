"""What Kafka knows about its topics: partitions, ids and settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource

from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.kafka")


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


def warm_metadata(consumer: Consumer, topic: str) -> None:
    """Fetch what Kafka knows about a topic before it is assigned: librdkafka looks only once a second for a topic that it does not know.

    Takes some milliseconds, without Kafka METADATA_TIMEOUT_S. Ignores a time-out: the assignment works without it, only later.
    """
    try:
        consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        log.debug("topic %s: %s", topic, error.args[0].str())


def topic_id(client: AdminClient, topic: str) -> str:
    """The topic's id in Kafka (KIP-516): another one means that the topic was deleted and made anew. Raises Unavailable."""
    try:
        description = client.describe_topics(TopicCollection([topic]), request_timeout=METADATA_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        raise Unavailable(f"topic {topic}: {error.args[0].str()}") from error
    return str(description.topic_id)


def topic_configs(client: AdminClient, topic: str) -> Mapping[str, str]:
    """A topic's settings as the broker has them."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    return {
        name: entry.value
        for name, entry in client.describe_configs([resource], request_timeout=METADATA_TIMEOUT_S)[resource].result().items()
    }
