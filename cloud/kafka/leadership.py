"""Elects a leader among processes: the member of a consumer group that gets a topic's partition.

The topic has one partition.

So an analysis computes (`ew.lanes`), and an operations server judges alerts (`ew.alerts`). The
others stand by. One of them leads when the leader was not heard of for `session_s`; it goes on from
the records of that topic, whatever its own files say. A leader that is back within `session_s`
leads on. One that the group gave the lead away from ends, and stands by when it begins again.

Leadership saves work and guards nothing: a leader that hangs may not know that it has lost it.
What guards the results is that the later producer of a lane fences the earlier one
(results/transaction.py), and the later judge the earlier one. Since only the leader starts lanes,
no two take turns in that.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, TopicPartition

from edgewake.cloud.kafka import clients, group_names
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol.errors import LocalError

log = logging.getLogger("edgewake.kafka")

HEARTBEAT_S: Final = 1.0
"""Seconds between two heartbeats, a third of the session at most."""
HANGS_MS: Final = 300_000
"""ms without a look at the group after which a member counts as hung: longer than its supervisor
waits until it kills it (run.SILENT_S)."""
_CONSUMER: Final[dict[str, Any]] = {
    # who joins takes nothing from the leader
    "partition.assignment.strategy": "cooperative-sticky",
    "auto.offset.reset": "latest",
    "max.poll.interval.ms": HANGS_MS,
}


class Role(StrEnum):
    """The role of a process."""

    JOINING = "joining"
    STANDBY = "standby"
    LEADER = "leader"
    UNSURE = "unsure"
    """It led, and the group does not hear it: it goes on with its lanes and starts none."""
    DEPOSED = "deposed"
    """Another one leads: it ends."""


def after_answer(role: Role, *, is_given: bool) -> Role:
    """The role after the group has shared out its partition; `is_given`: to this process, now."""
    if is_given:
        return Role.LEADER
    return {Role.JOINING: Role.STANDBY, Role.UNSURE: Role.DEPOSED}.get(role, role)


def after_loss(role: Role) -> Role:
    """The role after the partition was taken away, or after silence of more than a session."""
    return Role.UNSURE if role is Role.LEADER else role


class Leadership:
    """A member of the group. Not for several threads."""

    def __init__(
        self, config: KafkaConfig, name: str, *, what: str, topic: str, group: str, session_s: float
    ) -> None:
        """`name`: unique, and the same after a restart; `what` they are, for the log.

        With an empty name a member that leaves is followed at once. `topic`: one with a single
        partition.
        """
        self.role = Role.JOINING
        self._what, self._topic, self._group = what, topic, group
        self._config, self._name, self._session_s = config, name, session_s
        self._joined = 0
        self._consumer = self._join()

    def _join(self) -> Consumer:
        self._joined += 1
        instance = self._name if self._joined == 1 else f"{self._name}.{self._joined}"
        more: dict[str, Any] = {"group.instance.id": instance} if self._name else {}
        more |= {
            "session.timeout.ms": int(self._session_s * 1000),
            "heartbeat.interval.ms": int(min(HEARTBEAT_S, self._session_s / 3) * 1000),
        }
        consumer = clients.consumer(
            self._config, f"{self._what}-leadership", group=self._group, **more, **_CONSUMER
        )
        consumer.subscribe(
            [self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
        )
        return consumer

    def leads(self) -> bool:
        """Is it the leader, as far as is known? Raises LocalError when another one replaced it."""
        self.poll(0.0)
        if self.role is Role.DEPOSED:
            raise LocalError(
                f"another {self._what} leads now: this one ends, and stands by when it is started "
                "again"
            )
        return self.role is Role.LEADER

    def poll(self, timeout_s: float) -> None:
        """Take part in the group. Raises LocalError where Kafka allows no such session."""
        message = self._consumer.poll(timeout_s)
        if message is not None and message.error() is not None:
            self._on_error(message)

    def close(self) -> None:
        """Leave; the group gives the lead to another one when the session is over."""
        self._consumer.close()

    def _on_error(self, message: Message) -> None:
        error = message.error()
        assert error is not None
        if error.code() == KafkaError.INVALID_SESSION_TIMEOUT:
            raise LocalError(
                f"session_s = {self._session_s:g}: expected what Kafka allows, between its "
                "group.min.session.timeout.ms (6000 by default)"
                " and its group.max.session.timeout.ms"
            )
        if group_names.is_fenced(error):
            # Another one has our name, or Kafka was killed just after we joined and remembers us as
            # we were before. Under a new name nobody is thrown out: either the other one keeps the
            # lead, or what Kafka remembers is forgotten after a session.
            log.warning(
                "the group %s has another one of our name: %s",
                self._group,
                error.str(),
                extra={"event": f"{self._what}.name_taken"},
            )
            self.role = after_loss(self.role)
            self._consumer.close()
            self._consumer = self._join()

    def _assign(self, consumer: Consumer, given: list[TopicPartition]) -> None:
        partitions = [TopicPartition(one.topic, one.partition, OFFSET_END) for one in given]
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)  # it is a token: nothing is read of it
        self.role = after_answer(self.role, is_given=bool(given))

    def _revoke(self, consumer: Consumer, taken: list[TopicPartition]) -> None:
        consumer.incremental_unassign(taken)
        if taken:
            self.role = after_loss(self.role)
