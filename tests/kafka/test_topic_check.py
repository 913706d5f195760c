"""Topics that exist are checked against what we promise."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import RECORD_BYTES_MAX, KafkaConfig
from edgewake.cloud.kafka.metadata import partition_counts
from edgewake.cloud.kafka.topic_check import (
    broken_partitions,
    broken_promises,
    foreign_installation,
)
from edgewake.protocol import topics
from edgewake.protocol.errors import LocalError, Unavailable
from tests.services import wait_until

STREAM = "ew.s.some"
SOUND = {
    "cleanup.policy": "delete",
    "max.message.bytes": str(RECORD_BYTES_MAX),
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "retention.ms": "1000",
    "retention.bytes": "1000",
}
WANTED = {name: value for name, value in SOUND.items() if name != "cleanup.policy"}


def broken(topic: str = STREAM, **changes: str) -> list[tuple[str, bool]]:
    found = SOUND | {name.replace("_", "."): value for name, value in changes.items()}
    return [
        (one.detail.removeprefix(f"topic {topic}: ").split(" is ")[0], one.is_fatal)
        for one in broken_promises(topic, found, WANTED)
    ]


def test_a_sound_topic_and_one_that_promises_more_break_nothing() -> None:
    assert broken() == []
    assert (
        broken(
            max_message_bytes="9999999",
            min_insync_replicas="3",
            retention_ms="-1",
            retention_bytes="2000",
        )
        == []
    )


@pytest.mark.parametrize(
    ("name", "value", "is_fatal"),
    [
        ("cleanup_policy", "compact", True),
        ("cleanup_policy", "compact,delete", True),
        ("max_message_bytes", "1000012", True),
        ("min_insync_replicas", "1", True),
        ("unclean_leader_election_enable", "true", True),
        ("retention_ms", "999", False),
        ("retention_bytes", "999", False),
    ],
)
def test_a_setting_that_breaks_a_promise_is_named(name: str, value: str, is_fatal: bool) -> None:
    assert broken(**{name: value}) == [(name.replace("_", "."), is_fatal)]


def test_what_was_acknowledged_and_not_sequenced_must_not_be_deleted_early() -> None:
    assert broken(topics.UP, retention_ms="999") == [("retention.ms", True)]


@pytest.mark.parametrize(
    ("found", "expected"),
    [("CreateTime", [("message.timestamp.type", False)]), ("LogAppendTime", [])],
)
def test_a_topic_with_the_bridges_clocks_is_told_of(
    found: str, expected: list[tuple[str, bool]]
) -> None:
    wanted = WANTED | {"message.timestamp.type": "LogAppendTime"}
    told = broken_promises(topics.UP, SOUND | {"message.timestamp.type": found}, wanted)
    assert [(one.detail.split(": ")[1].split(" is ")[0], one.is_fatal) for one in told] == expected


def test_a_table_whose_rows_would_be_deleted_by_age_is_refused() -> None:
    found = list(broken_promises("ew.streams", SOUND, WANTED | {"cleanup.policy": "compact"}))
    assert [(one.detail.split(": ")[1], one.is_fatal) for one in found] == [
        ("cleanup.policy is delete, expected compact", True)
    ]


@pytest.mark.parametrize(
    ("replication", "given", "insync"),
    [(1, None, 1), (2, None, 2), (3, None, 2), (5, None, 3), (3, 3, 3), (3, 1, 1)],
)
def test_a_majority_of_the_copies_has_a_record_unless_configured(
    replication: int, given: int | None, insync: int
) -> None:
    assert KafkaConfig(replication=replication, min_insync_replicas=given).insync == insync


def test_more_copies_than_there_are_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="expected at most replication = 2"):
        KafkaConfig(replication=2, min_insync_replicas=3)


def test_a_topic_made_by_somebody_else_is_refused_on_a_real_kafka_and_one_of_ours_is_not(
    kafka_config: KafkaConfig,
) -> None:
    ours, other = (f"ew.s.check_{uuid.uuid4().hex}" for _ in range(2))
    client = clients.admin(kafka_config)
    topic_admin.ensure_topics(kafka_config, [ours])
    topic_admin.ensure_topics(kafka_config, [ours])
    client.create_topics([NewTopic(other, num_partitions=1, config={"cleanup.policy": "compact"})])[
        other
    ].result(20)
    with pytest.raises(
        LocalError, match=f"topic {other}: cleanup.policy is compact, expected delete"
    ):
        topic_admin.ensure_topics(kafka_config, [ours, other])
    asks_for_more = kafka_config.model_copy(
        update={
            "bootstrap": kafka_config.bootstrap.replace("127.0.0.1", "localhost"),
            "replication": 3,
        }
    )
    with pytest.raises(LocalError, match=r"min\.insync\.replicas is 1, expected 2"):
        topic_admin.ensure_topics(asks_for_more, [ours])


def test_a_kafka_that_has_too_few_brokers_now_is_waited_for(kafka_config: KafkaConfig) -> None:
    """They may be starting, or be shut out by their controller: whoever ended would stay away."""
    topic = f"ew.s.check_{uuid.uuid4().hex}"
    with pytest.raises(Unavailable, match=f"topic {topic}: .*replication factor of 3"):
        topic_admin.ensure_topics(kafka_config.model_copy(update={"replication": 3}), [topic])
    topic_admin.ensure_topics(kafka_config, [topic])


class LookedTooEarly(AdminClient):
    """Its first look at Kafka's topics was before somebody made `hidden`."""

    hidden = ""

    def list_topics(self, *arguments: Any, **options: Any) -> Any:
        found = super().list_topics(*arguments, **options)
        found.topics.pop(self.hidden, None)
        self.hidden = ""
        return found


def test_a_topic_that_somebody_else_makes_while_we_look_is_checked_too(
    kafka_config: KafkaConfig,
) -> None:
    other = f"ew.s.check_{uuid.uuid4().hex}"
    client = LookedTooEarly({"bootstrap.servers": kafka_config.bootstrap})
    client.create_topics([NewTopic(other, num_partitions=1, config={"cleanup.policy": "compact"})])[
        other
    ].result(20)
    wait_until(lambda: other in client.list_topics(timeout=5).topics, "the broker lists the topic")
    client.hidden = other
    with pytest.raises(
        LocalError, match=f"topic {other}: cleanup.policy is compact, expected delete"
    ):
        topic_admin.ensure_topics(kafka_config, [other], client=client)
    assert not client.hidden


def test_a_kafka_serves_one_installation() -> None:
    names = ["ew.up", "ew.installation.north"]
    assert foreign_installation(names, "north") is foreign_installation(["ew.up"], "south") is None
    refused = foreign_installation(names, "south")
    assert refused is not None
    assert refused.is_fatal
    assert "serves the installation 'north', and kafka.installation is 'south'" in refused.detail


def test_a_part_of_another_installation_does_not_start_on_a_real_kafka(
    kafka_config: KafkaConfig,
) -> None:
    topic = f"ew.s.theirs_{uuid.uuid4().hex}"
    topic_admin.ensure_topics(kafka_config, [topics.UP])
    with pytest.raises(
        LocalError, match=r"serves the installation 'edgewake', and kafka\.installation is 'south'"
    ):
        topic_admin.ensure_topics(
            kafka_config.model_copy(update={"installation": "south"}), [topic]
        )
    assert topic not in partition_counts(clients.admin(kafka_config))


def test_streams_with_another_number_of_partitions_are_named_once_and_keep_it() -> None:
    found = {f"ew.s.n{number}": 4 for number in range(7)} | {
        "ew.s.same": 2,
        "ew.s.part_status": 1,
        "ew.up": 64,
        "ew.q.q.1": 1,
    }
    (broken,) = broken_partitions(found, 2)
    assert (broken.is_fatal, broken.detail.count("has 4")) == (False, 5)
    assert broken.detail.startswith(
        "7 streams have another number of partitions than kafka.partitions = 2, and keep it: "
        "ew.s.n0 has 4"
    )
    assert list(broken_partitions({"ew.s.same": 2}, 2)) == []
