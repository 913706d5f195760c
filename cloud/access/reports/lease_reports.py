"""Tells the push proxies which clients with a lease read here, so that nobody wakes them meanwhile.

It sends one record when such a stream is opened, then one every REPEAT_S while it is open. Kafka's
absence delays no stream: the record is sent when it is back. A server that no such client comes to
makes no producer.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException, Producer

from edgewake.cloud.access.reports.connecting import connected
from edgewake.cloud.kafka import topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock, sleep_or
from edgewake.protocol.leases import lease_read, lease_record
from edgewake.protocol.leases.lease_read import REPEAT_S, LeaseRead

log = logging.getLogger("edgewake.access")

LOOK_S: Final = 1.0
"""Between two looks for news that is to be repeated."""


@dataclass(eq=False, slots=True)
class OpenRead:
    """A stream that was opened with a lease."""

    lease_id: str
    token_hash: str
    streams: tuple[str, ...]
    cursor: str | None
    """With which it resumed; None once that was sent."""
    due_at: float
    """On the monotonic clock."""


class LeaseReports:
    """All such streams of this server. `run` must run."""

    def __init__(self, config: KafkaConfig, name: str, clock: Clock) -> None:
        self._config = config
        self._name = name
        self._clock = clock
        self._open: set[OpenRead] = set()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, lease: tuple[str, str], *, streams: tuple[str, ...], cursor: str) -> OpenRead:
        """A client with this lease (id, token's hash) reads from now on. `end` it."""
        read = OpenRead(*lease, streams, cursor, self._clock.monotonic_s())
        self._open.add(read)
        self._news.set()
        return read

    def end(self, read: OpenRead) -> None:
        """It reads no more: its news is not repeated."""
        self._open.discard(read)

    async def run(self) -> None:
        """Report until cancelled."""
        await self._news.wait()
        producer = await connected(
            self._config,
            f"{self._name}-leases",
            lambda: topic_admin.ensure_partitions(
                self._config, [topics.LEASE_READS], lease_record.PARTITIONS
            ),
            self._clock,
            lambda error: log.warning("leases: %s", error, extra={"event": "access.leases_away"}),
        )
        try:
            while True:
                self._news.clear()
                self._report(producer)
                await sleep_or(self._clock, LOOK_S, self._news)
        finally:
            await asyncio.to_thread(producer.flush, 1.0)

    def _report(self, producer: Producer) -> None:
        now = self._clock.monotonic_s()
        for read in list(self._open):
            if read.due_at <= now:
                self._send(producer, read)
        producer.poll(0)

    def _send(self, producer: Producer, read: OpenRead) -> None:
        value = lease_read.encode(
            LeaseRead(read.token_hash, self._clock.now_ms(), read.streams, read.cursor)
        )
        partition = lease_record.partition_of(read.lease_id)
        try:
            producer.produce(
                topics.LEASE_READS, key=read.lease_id, value=value, partition=partition
            )
        except (BufferError, KafkaException) as error:  # Kafka is away: again at the next look
            log.debug("leases: %s", error)
            return
        read.cursor, read.due_at = None, self._clock.monotonic_s() + REPEAT_S


class LeaseReport:
    """One stream's part in it: `start` when it is served, `end` when it is over."""

    def __init__(
        self, reports: LeaseReports, lease: tuple[str, str], streams: tuple[str, ...], cursor: str
    ) -> None:
        self._reports, self._lease, self._streams, self._cursor = reports, lease, streams, cursor
        self._read: OpenRead | None = None

    def start(self) -> None:
        """The client reads."""
        self._read = self._reports.open(self._lease, streams=self._streams, cursor=self._cursor)

    def end(self) -> None:
        """It does not any more."""
        if self._read is not None:
            self._reports.end(self._read)
