"""The table of leases: `ew.leases`, owned by one proxy at a time.

*Who owns the partition owns the leases.* All proxies join one consumer group on the single partition of `ew.leases`; the one that gets
it reads the table from its beginning and serves; the others stand by and answer 503. A proxy that dies is followed by its own restart
at once (static membership by name) or by another one after SESSION_TIMEOUT_MS.

*Who lost it cannot write.* Every change is a Kafka transaction of one fixed transactional id; the new owner's `init_transactions`
fences the old owner's producer, so that a proxy that was frozen and woke up cannot undo what its successor wrote.

Two threads block on Kafka: the membership's poll loop, and one writer at a time. `put` and `remove` return only when the transaction is
committed (acks=all); all changes that wait at the same time go into one transaction.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from pydantic import ValidationError

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.protocol import topics
from edgewake.protocol.errors import EdgewakeError, LocalError, Unavailable
from edgewake.protocol.lease import Lease

log = logging.getLogger("edgewake.push")

GROUP: Final = "edgewake-push"
TRANSACTIONAL_ID: Final = "edgewake-push"
SESSION_TIMEOUT_MS: Final = 6000
"""A proxy that was silent so long has lost the leases. Kafka's least, so that another takes over soon."""
CHANGES_PER_TRANSACTION_MAX: Final = 500
WRITE_TIMEOUT_S: Final = 10.0
"""A change that is not committed by then is given up; the caller answers 503."""
RETRY_S: Final = (0.2, 5.0)
"""First and longest wait between attempts to reach Kafka."""


class NotOwner(EdgewakeError):
    """Another proxy has the leases."""


@dataclass(slots=True)
class _Change:
    key: str
    value: bytes | None
    done: asyncio.Future[None]


class LeaseWriter:
    """Writes changes in fenced transactions. Made anew each time the leases are taken over."""

    def __init__(self, config: KafkaConfig) -> None:
        self._producer: Producer = clients.transactional_producer(config, TRANSACTIONAL_ID)
        self._thread = ThreadPoolExecutor(1, "lease-writer")  # of its own: slow name look-ups must not hold it up
        self._waiting: list[_Change] = []
        self._wake = asyncio.Event()

    def fence(self) -> None:
        """Fence all earlier owners; blocks. Raises Unavailable."""
        try:
            self._producer.init_transactions(WRITE_TIMEOUT_S)
        except KafkaException as error:
            raise Unavailable(f"leases: {error.args[0].str()}") from error

    async def put(self, lease: Lease) -> None:
        """Keep a lease. Raises Unavailable when Kafka did not confirm it in time; it may be kept all the same."""
        await self._submit(lease.id, lease.model_dump_json().encode())

    async def remove(self, lease_id: str) -> None:
        """Forget a lease. Raises Unavailable."""
        await self._submit(lease_id, None)

    async def _submit(self, key: str, value: bytes | None) -> None:
        change = _Change(key, value, asyncio.get_running_loop().create_future())
        self._waiting.append(change)
        self._wake.set()
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                await asyncio.shield(change.done)
        except TimeoutError:
            if change in self._waiting:
                self._waiting.remove(change)
            raise Unavailable(f"lease {key}: Kafka did not confirm the change within {WRITE_TIMEOUT_S:g} s") from None

    async def run(self) -> None:
        """Commit what waits, for ever. Raises NotOwner when another proxy has taken over."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._commit_some()
        finally:
            self._thread.shutdown(wait=False)

    async def _commit_some(self) -> None:
        batch = self._waiting[:CHANGES_PER_TRANSACTION_MAX]
        del self._waiting[:CHANGES_PER_TRANSACTION_MAX]
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, batch)
        except Unavailable as error:
            _settle(batch, error)
        except NotOwner as error:
            _settle(batch + self._waiting, error)
            raise
        else:
            _settle(batch, None)

    def _commit(self, batch: list[_Change]) -> None:
        failed: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        try:
            self._producer.begin_transaction()
            for change in batch:
                self._producer.produce(topics.LEASES, key=change.key, value=change.value, partition=0, on_delivery=on_delivery)
            self._producer.commit_transaction(WRITE_TIMEOUT_S)
        except KafkaException as error:
            self._abort(error.args[0])
        if failed:
            raise Unavailable(f"leases: {failed[0].str()}")

    def _abort(self, error: KafkaError) -> None:
        """Give the transaction up; raises NotOwner where we were fenced, else Unavailable."""
        if clients.is_fenced(error) or error.fatal():
            raise NotOwner(f"leases: {error.str()}")
        try:
            self._producer.abort_transaction(WRITE_TIMEOUT_S)
        except KafkaException as second:
            raise NotOwner(f"leases: {second.args[0].str()}") from second
        raise Unavailable(f"leases: {error.str()}")


def _settle(batch: list[_Change], error: Exception | None) -> None:
    for change in batch:
        if change.done.done():
            continue
        if error is None:
            change.done.set_result(None)
        else:
            change.done.set_exception(error)
            change.done.exception()  # its waiter may have given up; then nobody else would ask


class Membership:
    """The group member. A thread polls; `on_owned(leases, writer)` and `on_lost()` are called on the event loop."""

    def __init__(
        self,
        config: KafkaConfig,
        name: str,
        *,
        on_owned: Callable[[Mapping[str, Lease], LeaseWriter], None],
        on_lost: Callable[[], None],
        rng: random.Random,
    ) -> None:
        self._config = config
        self._name = name
        self._on_owned = on_owned
        self._on_lost = on_lost
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._table: dict[str, Lease] | None = None
        self._writer: LeaseWriter | None = None

    async def run(self) -> None:
        """Be a member until cancelled. Raises LocalError where another proxy runs under the same name."""
        executor = ThreadPoolExecutor(1, "lease-member")
        thread = self._loop.run_in_executor(executor, self._blocking)
        try:
            await asyncio.shield(thread)
        finally:
            self._stop.set()  # the poll loop looks at it ten times a second
            await asyncio.gather(thread, return_exceptions=True)
            executor.shutdown()

    def _blocking(self) -> None:
        wait = RETRY_S[0]
        while not self._stop.is_set():
            try:
                topic_admin.ensure_topics(self._config, [topics.LEASES])
                self._be_member()
                wait = RETRY_S[0]
            except Unavailable as error:
                log.warning("waiting for Kafka: %s", error, extra={"event": "kafka.away"})
                self._stop.wait(wait * (0.5 + self._rng.random()))
                wait = min(wait * 2, RETRY_S[1])

    def _be_member(self) -> None:
        member: Consumer = clients.consumer(
            self._config,
            self._name,
            group=GROUP,
            **{
                "group.instance.id": self._name,
                "partition.assignment.strategy": "cooperative-sticky",  # who has the table keeps it when another joins
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": SESSION_TIMEOUT_MS // 4,
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": 4096,
            },
        )
        try:
            member.subscribe([topics.LEASES], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
            while not self._stop.is_set():
                for message in member.consume(500, 0.1):
                    self._take(message)
        except KafkaException as error:
            raise Unavailable(f"leases: {error.args[0].str()}") from error
        finally:
            member.close()
            self._revoked(member, [])

    def _assigned(self, member: Consumer, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        # Fence first, read second: after the fence nobody can add to what we are about to read.
        self._writer = LeaseWriter(self._config)
        self._writer.fence()
        self._table = {}
        member.incremental_assign([TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions])

    def _revoked(self, _: Consumer, __: list[TopicPartition]) -> None:
        if self._writer is not None:
            self._table = self._writer = None
            self._tell(self._on_lost)

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            if self._table is not None:
                self._tell(self._on_owned, self._table, self._writer)
                self._table = None
        elif error is not None and error.fatal():
            raise LocalError(f"another push proxy runs under the name {self._name!r}: {error.str()}")
        elif error is None and self._table is not None:  # later records are our own
            _apply(self._table, message)

    def _tell(self, what: Callable[..., None], *arguments: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, *arguments)


def _apply(table: dict[str, Lease], message: Message) -> None:
    key, value = message.key().decode("utf-8", "replace"), message.value()
    if value is None:
        table.pop(key, None)
        return
    try:
        table[key] = Lease.model_validate_json(value)
    except ValidationError as error:
        log.error("lease %s cannot be read: %s", key, error.errors()[0]["msg"], extra={"event": "push.lease_unreadable"})
