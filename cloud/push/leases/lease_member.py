"""Membership in the consumer group that shares the partitions of `ew.leases` between proxies.

The proxy that is assigned a partition fences its earlier owner, reads the partition from its
beginning, and hands its leases over; other partitions go on meanwhile. A proxy that dies is
followed by its own restart at once (static membership by name) or by the others after
`session_timeout_s`. One thread polls Kafka; the callbacks run on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from edgewake.cloud.kafka import clients, group_names, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.push.leases.lease_writer import LeaseWriter
from edgewake.cloud.push.leases.poll_thread import run_in_thread
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import LocalError, Unavailable
from edgewake.protocol.leases import lease_record
from edgewake.protocol.leases.lease_record import Lease

log = logging.getLogger("edgewake.push")

GROUP: Final = "edgewake-push"
POLL_RECORDS: Final = 500
RETRY_S: Final = (0.2, 5.0)
"""First and longest wait between attempts to reach Kafka."""


class _NameTaken(LocalError):
    """The group gave our name to another member."""


class Owner(Protocol):
    """Receives the partitions that come and go, on the event loop."""

    def partition_owned(
        self, partition: int, leases: Mapping[str, Lease], writer: LeaseWriter
    ) -> None:
        """The leases of a partition are ours."""

    def partition_lost(self, partition: int) -> None:
        """They are not any more."""


class OwnerOfRows(Protocol):
    """Owns rows of other kinds, whose keys have a `|`."""

    def partition_owned(
        self, partition: int, rows: Mapping[str, bytes], writer: LeaseWriter
    ) -> None:
        """These rows are ours; the owner of the leases runs the writer."""

    def partition_lost(self, partition: int) -> None:
        """They are not any more."""


@dataclass(slots=True)
class _Reading:
    """A partition that is being read for the first time."""

    writer: LeaseWriter
    leases: dict[str, Lease] = field(default_factory=dict)
    rows: dict[str, bytes] = field(default_factory=dict)
    records: int = 0


class Membership:
    """The group member."""

    def __init__(
        self,
        config: KafkaConfig,
        name: str,
        url: str,
        *,
        owner: Owner,
        owners_of_rows: Sequence[OwnerOfRows] = (),
        clock: Clock,
        rng: random.Random,
        session_timeout_s: float,
    ) -> None:
        """`url`: where other proxies reach this one; they find it in the client id.

        `session_timeout_s`: a proxy that is silent for so long loses its leases.
        """
        self._config = config
        self._name = name
        self._session_timeout_ms = round(session_timeout_s * 1000)
        self._client_id = f"{name}@{url}"
        self._owner = owner
        self._owners_of_rows = owners_of_rows
        self._clock = clock
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._reading: dict[int, _Reading] = {}
        self._owned: set[int] = set()
        self.records_read = 0
        """Records read of partitions that are being taken over, for people who wait for it."""

    @property
    def partitions_reading(self) -> int:
        """Partitions that are being taken over."""
        return len(self._reading)

    async def run(self) -> None:
        """Be a member until cancelled.

        Raises LocalError where another proxy runs under the same name.
        """
        await run_in_thread("lease-member", self._blocking, self._stop)

    def _blocking(self) -> None:
        wait = RETRY_S[0]
        while not self._stop.is_set():
            try:
                topic_admin.ensure_partitions(
                    self._config, [topics.LEASES, topics.LEASE_READS], lease_record.PARTITIONS
                )
                self._be_member()
                wait = RETRY_S[0]
            except Unavailable as error:
                log.warning("waiting for Kafka: %s", error, extra={"event": "kafka.away"})
                self._stop.wait(wait * (0.5 + self._rng.random()))
                wait = min(wait * 2, RETRY_S[1])
            except _NameTaken:
                if self._is_name_in_use():
                    raise
                log.warning("fenced, but no proxy has our name", extra={"event": "push.fenced"})

    def _is_name_in_use(self) -> bool:
        return group_names.is_in_use(
            self._config,
            GROUP,
            self._name,
            session_s=self._session_timeout_ms / 1000,
            clock=self._clock,
            pause=self._stop.wait,
        )

    def _be_member(self) -> None:
        member: Consumer = clients.consumer(
            self._config,
            self._client_id,
            group=GROUP,
            **{
                "group.instance.id": self._name,
                # who has a partition keeps it when another joins, if that is fair
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": self._session_timeout_ms,
                "heartbeat.interval.ms": self._session_timeout_ms // 4,
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 4096,
                "fetch.wait.max.ms": clients.HANDED_OVER_WAIT_MS,
            },
        )
        try:
            member.subscribe(
                [topics.LEASES],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )
            while not self._stop.is_set():
                for message in member.consume(POLL_RECORDS, 0.1):
                    self._read_message(message)
        except KafkaException as error:
            raise Unavailable(f"leases: {error.args[0].str()}") from error
        finally:
            member.close()
            self._lose(list(self._owned) + list(self._reading))

    def _assigned(self, member: Consumer, partitions: list[TopicPartition]) -> None:
        for assigned in partitions:
            # Fence first, read second: after the fence nobody can add to what we are about to read.
            writer = LeaseWriter(self._config, assigned.partition, self._clock)
            writer.fence()
            self._reading[assigned.partition] = _Reading(writer)
        if partitions:
            member.incremental_assign(
                [TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions]
            )

    def _revoked(self, member: Consumer, partitions: list[TopicPartition]) -> None:
        self._lose([revoked.partition for revoked in partitions])
        if partitions:
            member.incremental_unassign(partitions)

    def _lose(self, partitions: list[int]) -> None:
        for partition in partitions:
            self._reading.pop(partition, None)
            if partition in self._owned:
                self._owned.discard(partition)
                for other in self._owners_of_rows:
                    self._call(other.partition_lost, partition)
                self._call(self._owner.partition_lost, partition)

    def _read_message(self, message: Message) -> None:
        error, partition = message.error(), message.partition()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            reading = self._reading.pop(partition, None)
            if reading is not None:
                self._owned.add(partition)
                self._call(self._owner.partition_owned, partition, reading.leases, reading.writer)
                for other in self._owners_of_rows:
                    self._call(other.partition_owned, partition, reading.rows, reading.writer)
        elif error is not None and group_names.is_fenced(error):
            raise _NameTaken(
                f"another push proxy runs under the name {self._name!r}: {error.str()}"
            )
        elif error is None and partition in self._reading:  # later records are our own
            reading = self._reading[partition]
            reading.records += 1
            self.records_read += 1
            _apply(reading, message)

    def _call(self, method: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(method, *arguments)


def _apply(reading: _Reading, message: Message) -> None:
    key, value = message.key().decode("utf-8", "replace"), message.value()
    if value is None:
        reading.rows.pop(key, None)
        reading.leases.pop(key, None)
        return
    if "|" in key:
        reading.rows[key] = value
        return
    try:
        reading.leases[key] = lease_record.decode(value)
    except ValueError as error:
        log.error(
            "lease %s cannot be read and is left as it is: %s",
            key,
            error,
            extra={"event": "push.lease_unreadable"},
        )
