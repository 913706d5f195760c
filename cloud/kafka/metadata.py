"""What Kafka knows about its topics: partitions, ids and settings."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import ConfigResource, TopicMetadata

from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S
from edgewake.cloud.kafka.mortal import Admin
from edgewake.protocol.errors import Unavailable

log = logging.getLogger("edgewake.kafka")


def partition_counts(client: Admin | Consumer) -> dict[str, int]:
    """Partitions of every topic there is. Raises Unavailable."""
    return {name: len(topic.partitions) for name, topic in _all_topics(client).items()}


def partitions_with_leader(client: Admin | Consumer) -> dict[str, int]:
    """The number of partitions of every topic whose partitions all have a leader.

    A topic that is being created may lack some.

    Raises Unavailable.
    """
    found = _all_topics(client)
    return {
        name: len(topic.partitions)
        for name, topic in found.items()
        if all(one.leader >= 0 for one in topic.partitions.values())
    }


def _all_topics(client: Admin | Consumer) -> dict[str, TopicMetadata]:
    try:
        found: dict[str, TopicMetadata] = client.list_topics(timeout=METADATA_TIMEOUT_S).topics
    except KafkaException as error:
        raise Unavailable(f"Kafka: {error.args[0].str()}") from error
    return found


def partition_count(client: Admin | Consumer, topic: str) -> int:
    """Partitions of a topic; 0 where it does not exist. Raises Unavailable."""
    try:
        found = client.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics.get(topic)
    except KafkaException as error:
        raise Unavailable(f"Kafka: {error.args[0].str()}") from error
    return 0 if found is None or found.error is not None else len(found.partitions)


def warm_metadata(consumer: Consumer, topic: str) -> None:
    """Fetch what Kafka knows about a topic before it is assigned.

    librdkafka looks only once a second for a topic that it does not know.

    Takes some milliseconds, without Kafka METADATA_TIMEOUT_S. Ignores a time-out: the assignment
    works without it, only later.
    """
    try:
        consumer.list_topics(topic, timeout=METADATA_TIMEOUT_S)
    except KafkaException as error:
        log.debug("topic %s: %s", topic, error.args[0].str())


def topic_id(client: Admin, topic: str) -> str:
    """The topic's id in Kafka (KIP-516). Raises Unavailable.

    Another id means that the topic was recreated.
    """
    try:
        description = client.describe_topics(
            TopicCollection([topic]), request_timeout=METADATA_TIMEOUT_S
        )[topic].result()
    except KafkaException as error:
        raise Unavailable(f"topic {topic}: {error.args[0].str()}") from error
    return str(description.topic_id)


def topic_ids(client: Admin, names: Iterable[str]) -> dict[str, str]:
    """The topics' ids in Kafka (KIP-516): another one means that a topic was recreated.

    Raises Unavailable.
    """
    try:
        asked = client.describe_topics(
            TopicCollection(list(names)), request_timeout=METADATA_TIMEOUT_S
        )
        return {name: str(future.result().topic_id) for name, future in asked.items()}
    except KafkaException as error:
        raise Unavailable(f"Kafka's topics: {error.args[0].str()}") from error


def topic_configs(client: Admin, topic: str) -> Mapping[str, str]:
    """A topic's settings as the broker has them. Raises Unavailable."""
    return topic_configs_of(client, [topic]).get(topic, {})


def topic_configs_of(client: Admin, names: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """The settings of several topics; one that is gone, or that we may not see, is left out.

    Raises Unavailable.
    """
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    found: dict[str, Mapping[str, str]] = {}
    asked = (
        client.describe_configs(resources, request_timeout=METADATA_TIMEOUT_S) if resources else {}
    )
    for resource, future in asked.items():
        try:
            found[resource.name] = {name: entry.value for name, entry in future.result().items()}
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                log.warning(
                    "topic %s: its settings may not be read by us, so they are not checked",
                    resource.name,
                )
            elif error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise Unavailable(f"topic {resource.name}: {error.args[0].str()}") from error
    return found
