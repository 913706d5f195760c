"""Makes the topics that are missing, with the settings that our promises need."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

from edgewake.cloud.kafka.clients import admin, away
from edgewake.cloud.kafka.config import METADATA_TIMEOUT_S, RECORD_BYTES_MAX, KafkaConfig
from edgewake.cloud.kafka.metadata import partition_counts, partitions_with_leader, topic_configs_of
from edgewake.cloud.kafka.mortal import Admin
from edgewake.cloud.kafka.offsets import LEADER_S
from edgewake.cloud.kafka.topic_check import broken_promises, foreign_installation
from edgewake.protocol import topics
from edgewake.protocol.errors import EdgewakeError, LocalError, Unavailable

log = logging.getLogger("edgewake.kafka")


def ensure_topics(
    config: KafkaConfig, names: Iterable[str], *, client: Admin | None = None
) -> None:
    """Create missing topics, with the settings of `edgewake.protocol.topics`.

    Several processes may call it at once.

    Those that exist, or that somebody else makes meanwhile, are checked, once in a process: see
    `topic_check`. When it returns, the broker that we ask lists all of them, each partition with a
    leader. Raises Unavailable where the broker is away, LocalError where it refuses or a topic
    breaks a promise.
    """
    # An Admin has a length, so it may be false.
    client = admin(config) if client is None else client
    try:
        existing = client.list_topics(timeout=METADATA_TIMEOUT_S).topics
    except KafkaException as error:
        client.poll(0)  # so that librdkafka says what is wrong
        raise away(config, error.args[0]) from error
    _check_installation(config, existing)
    names = [*dict.fromkeys(names), topics.INSTALLATION_PREFIX + config.installation]
    for name in names:
        if name in existing:
            _check_partitions(name, len(existing[name].partitions))
    _check_settings(config, client, [name for name in names if name in existing])
    missing = [_new_topic(config, name) for name in names if name not in existing]
    if not missing:
        return
    made_by_others = []
    for name, future in client.create_topics(missing, request_timeout=METADATA_TIMEOUT_S).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise _refused_or_away(name, error.args[0]) from error
            made_by_others.append(name)
    found = _await_listed(client, [topic.topic for topic in missing])
    for name in made_by_others:
        _check_partitions(name, found[name])
    _check_settings(config, client, made_by_others)
    if topics.INSTALLATION_PREFIX + config.installation not in existing:
        # Somebody else may have come at the same time.
        _check_installation(config, partition_counts(client))


def _await_listed(client: Admin, names: Collection[str]) -> Mapping[str, int]:
    """Wait until the broker that we ask lists topics that were just created. Raises Unavailable.

    It may learn of them later than the one that created them, and would call them missing before.
    """
    deadline = time.monotonic() + METADATA_TIMEOUT_S
    while True:
        found = partitions_with_leader(client)
        unlisted = [name for name in names if not found.get(name)]
        if not unlisted:
            return found
        if time.monotonic() > deadline:
            raise Unavailable(
                f"topic {unlisted[0]}: Kafka says that it exists, and does not list it after "
                f"{METADATA_TIMEOUT_S:g} s; try again"
            )
        time.sleep(LEADER_S)


_checked: set[tuple[str, str]] = set()
"""(bootstrap, topic) that kept our promises when this process first met them. One entry for each
topic of the cluster at most."""


def _check_settings(config: KafkaConfig, client: Admin, names: Iterable[str]) -> None:
    unchecked = [name for name in names if (config.bootstrap, name) not in _checked]
    for name, found in topic_configs_of(client, unchecked).items():
        for broken in broken_promises(name, found, topic_settings(config, name)):
            if broken.is_fatal:
                raise LocalError(broken.detail)
            log.warning("%s", broken.detail, extra={"event": "kafka.topic_setting", "topic": name})
        _checked.add((config.bootstrap, name))


def _check_installation(config: KafkaConfig, names: Iterable[str]) -> None:
    broken = foreign_installation(names, config.installation)
    if broken is not None:
        raise LocalError(broken.detail)


def _check_partitions(name: str, found: int) -> None:
    fixed = topics.FIXED_PARTITIONS.get(name, found)
    if found not in (0, fixed):  # 0: it is being made, or its partitions have no leader yet
        raise LocalError(
            f"topic {name} has {found} partitions, expected {fixed}: their number is fixed, "
            "because the order of each device is kept by "
            f"partition; docs/operations.md tells how to move to {fixed}"
        )


_NOT_NOW: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError.UNKNOWN,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""What Kafka says of how it is at the moment, and not of what was asked. Too few brokers for the
copies of a topic are among it: a controller shuts brokers out that were silent, and those of a
cluster start one after another. A part that took such a word for a fault of its configuration would
end, and nobody starts it again."""


def _refused_or_away(topic: str, error: KafkaError) -> EdgewakeError:
    """The error of a broker that refuses, or is slow or away.

    librdkafka calls none retriable that a broker answers to an admin.
    """
    is_away = error.code() in _NOT_NOW
    return (Unavailable if is_away else LocalError)(f"topic {topic}: {error.str()}")


def topic_settings(config: KafkaConfig, name: str) -> dict[str, str]:
    """The settings that a topic of ours is made with."""
    settings = {
        "max.message.bytes": str(RECORD_BYTES_MAX),
        "min.insync.replicas": str(config.insync),
        "unclean.leader.election.enable": "false",
    }
    if name in topics.SUMMARIES:
        settings |= {
            "cleanup.policy": "compact,delete",
            "min.cleanable.dirty.ratio": "0.2",
            "segment.ms": "3600000",
        }
        settings |= {"retention.ms": str(topics.SUMMARIES_KEPT_MS[name]), "retention.bytes": "-1"}
    elif name in topics.COMPACTED:
        settings |= {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.2",
            "segment.ms": "600000",
        }
    elif name == topics.UP:
        settings |= {
            "retention.ms": str(config.up_retention_hours * 3_600_000),
            "retention.bytes": "-1",
        }
        settings |= {"message.timestamp.type": "LogAppendTime"}
    elif name == topics.CLIENTS:
        settings |= {
            "retention.ms": str(topics.CLIENTS_KEPT_MS),
            "retention.bytes": "-1",
            "segment.ms": "60000",
        }
    elif name == topics.PARTS:
        settings |= {"retention.ms": str(topics.PARTS_KEPT_MS), "retention.bytes": "-1"}
    elif name == topics.HISTORY:
        settings |= {
            "retention.ms": str(topics.HISTORY_KEPT_MS),
            "retention.bytes": str(topics.HISTORY_BYTES_MAX),
        }
    elif name == topics.AUDIT:
        settings |= {
            "retention.ms": str(topics.AUDIT_KEPT_MS),
            "retention.bytes": str(topics.AUDIT_BYTES_MAX),
        }
    else:
        settings |= {
            "retention.ms": str(config.retention_hours * 3_600_000),
            "retention.bytes": str(config.retention_bytes),
        }
    return settings


def _new_topic(config: KafkaConfig, name: str) -> NewTopic:
    single = name in topics.SINGLE_PARTITION or name.startswith(
        (topics.QUERY_PREFIX, topics.INSTALLATION_PREFIX)
    )
    count = topics.FIXED_PARTITIONS.get(name) or (1 if single else config.partitions)
    return NewTopic(
        name,
        num_partitions=count,
        replication_factor=config.replication,
        config=topic_settings(config, name),
    )


def ensure_partitions(
    config: KafkaConfig, names: Iterable[str], count: int, *, client: Admin | None = None
) -> None:
    """Make topics with at least `count` partitions, and add what an older one lacks.

    Raises Unavailable or LocalError.
    """
    client = client or admin(config)
    names = list(names)
    ensure_topics(config.model_copy(update={"partitions": count}), names, client=client)
    found = partition_counts(client)
    narrow = [NewPartitions(name, count) for name in names if 0 < found.get(name, 0) < count]
    for name, future in (
        client.create_partitions(narrow, request_timeout=METADATA_TIMEOUT_S) if narrow else {}
    ).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_PARTITIONS:  # another process was faster
                raise _refused_or_away(name, error.args[0]) from error


def alter_settings(
    client: Admin, topic: str, settings: Mapping[str, str], *, is_trial: bool = False
) -> None:
    """Change some settings of a topic; the others stay. Raises Unavailable or LocalError.

    `is_trial`: Kafka says what it would say, and changes nothing.
    """
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
    for future in client.incremental_alter_configs(
        [resource], validate_only=is_trial, request_timeout=METADATA_TIMEOUT_S
    ).values():
        try:
            future.result()
        except KafkaException as error:
            raise _refused_or_away(topic, error.args[0]) from error


def delete_topics(client: Admin, names: Iterable[str]) -> None:
    """Delete topics; a missing one is not an error. Raises Unavailable or LocalError."""
    there = list(names)
    if not there:  # Kafka's client refuses a question about nothing
        return
    for name, future in client.delete_topics(there, request_timeout=METADATA_TIMEOUT_S).items():
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _refused_or_away(name, error.args[0]) from error
