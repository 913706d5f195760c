"""Which shards this process serves: a consumer group over the partitions of `ew.sequence`.

It reads nothing of them.

Cooperative rebalancing: only shards that move are taken from their process, all others go on.
Static membership: a process that is back under its name within `session_s` has its shards again
without any rebalance. The group's offsets of `ew.up` are only published, for lag tools and for the
bridges; the truth is on `ew.sequence`.

The newer group protocol (KIP-848) would do, too, but its session time-out is the broker's, 45 s
unless the operator changes it, and a shard may not wait that long for its next process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from edgewake.cloud.kafka import clients, group_names
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError
from edgewake.protocol.topics import SEQUENCER_GROUP

log = logging.getLogger("edgewake.sequencer")

HEARTBEAT_S: Final = 0.5
"""Seconds between two heartbeats, a third of the session at most. The answer to one tells that
shards move, so a heartbeat is also what a takeover waits for before it begins."""
FENCED_S: Final = 3.0
"""Seconds in which the group tells whether a process of our name joined it: some heartbeats."""
POLL_S: Final = 0.1
_CONSUMER: Final[dict[str, Any]] = {
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.offset.reset": "latest",
}


class NameTaken(LocalError):
    """The group fenced us: another member has our instance id."""


class Membership:
    """A member of the group; `on_gained` and `on_lost` are called within `poll`."""

    def __init__(
        self,
        config: KafkaConfig,
        name: str,
        *,
        session_s: float,
        on_gained: Callable[[Sequence[int]], None],
        on_lost: Callable[[Sequence[int]], None],
    ) -> None:
        """`session_s`: seconds without a heartbeat after which the group drops this process."""
        self._session_s = session_s
        self._on_gained, self._on_lost = on_gained, on_lost
        self.is_joined = False
        """Has the group assigned our shards, even if there are none?"""
        more = {
            "group.instance.id": name,
            "session.timeout.ms": int(session_s * 1000),
            "heartbeat.interval.ms": int(min(HEARTBEAT_S, session_s / 3) * 1000),
        }
        self._consumer = clients.consumer(config, name, group=SEQUENCER_GROUP, **more, **_CONSUMER)
        self._consumer.subscribe(
            [topics.SEQUENCE], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
        )

    def _assign(self, consumer: Consumer, gained: list[TopicPartition]) -> None:
        self.is_joined = True
        gained_partitions = [TopicPartition(topics.SEQUENCE, one.partition, 0) for one in gained]
        consumer.incremental_assign(gained_partitions)
        consumer.pause(gained_partitions)
        self._on_gained([one.partition for one in gained])

    def _revoke(self, consumer: Consumer, lost: list[TopicPartition]) -> None:
        self._on_lost([one.partition for one in lost])
        consumer.incremental_unassign(lost)

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take part in the group.

        Raises NameTaken, KafkaException, or LocalError where Kafka allows no such session.
        """
        message = self._consumer.poll(timeout_s)
        if message is None:
            return
        if (
            error := message.error()
        ) is not None and error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            raise LocalError(
                f"session_s = {self._session_s:g}: expected what Kafka allows, between its "
                "group.min.session.timeout.ms (6000 by default) "
                "and its group.max.session.timeout.ms"
            )
        check_event(message)

    def raise_if_name_taken(self, clock: Clock) -> None:
        """Raise NameTaken if another process has our name.

        Called when another process serves a shard of ours: the group may also have given it away.
        """
        until_s = clock.monotonic_s() + FENCED_S
        while clock.monotonic_s() < until_s:
            self.poll(POLL_S)

    def publish(self, positions: Mapping[int, int]) -> None:
        """Publish how far the partitions of `ew.up` are sequenced.

        It does not wait; the next call makes up for a failure.
        """
        offsets = [
            TopicPartition(topics.UP, partition, offset) for partition, offset in positions.items()
        ]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            log.debug("positions are not published: %s", error.args[0].str())

    def close(self) -> None:
        """Leave; until the session ends the shards are kept for a process of our name."""
        self._consumer.close()


def check_event(message: Message) -> None:
    """Handle a consumer's event: most pass by themselves, others end the session.

    Those raise KafkaException. The only fatal one is that another member has our group instance id
    (NameTaken); to join again would throw that one out in turn, endlessly.
    """
    error = message.error()
    if error is None:
        return
    if group_names.is_fenced(error):
        raise NameTaken(f"another process runs under our name: {error.str()}")
    if not (error.retriable() or error.code() == KafkaError._PARTITION_EOF):
        raise KafkaException(error)
