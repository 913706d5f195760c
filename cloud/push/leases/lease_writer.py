"""Writes one partition of `ew.leases` in transactions that only the partition's owner can commit.

Each partition has one fixed transactional id; a new owner's `init_transactions` fences the old
owner's producer, so that a proxy that was frozen and woke up cannot undo what its successor wrote.
A committed transaction therefore proves ownership, and `proved_at` is when the last one began: the
proxy asks it before each call.

`put` and `remove` return only when the transaction is committed (acks=all); all changes that wait
at the same time go into one.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.delivery_reports import DeliveryReports
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import EdgewakeError, Unavailable
from edgewake.protocol.leases import lease_record
from edgewake.protocol.leases.lease_record import Lease

log = logging.getLogger("edgewake.push")

TRANSACTIONAL_ID: Final = "edgewake-push"
CHANGES_PER_TRANSACTION_MAX: Final = 500
WRITE_TIMEOUT_S: Final = 10.0
"""A change that is not committed by then is given up; the caller answers 503."""


class NotOwner(EdgewakeError):
    """Another proxy has the partition."""


@dataclass(slots=True)
class _Change:
    key: str
    value: bytes | None
    done: asyncio.Future[None]


class LeaseWriter:
    """Writes changes of one partition in fenced transactions.

    One is made each time the partition is taken over.
    """

    def __init__(self, config: KafkaConfig, partition: int, clock: Clock) -> None:
        self.partition = partition
        self.proved_at = float("-inf")
        """When, on the monotonic clock, the last transaction began that was committed."""
        self._clock = clock
        self._producer: Producer = clients.transactional_producer(
            config, f"{TRANSACTIONAL_ID}-{partition}"
        )
        # It has its own thread: slow name look-ups must not hold it up.
        self._thread = ThreadPoolExecutor(1, f"lease-writer-{partition}")
        self._waiting: list[_Change] = []
        self._wake = asyncio.Event()

    def fence(self) -> None:
        """Fence all earlier owners; blocks. Raises Unavailable."""
        try:
            clients.fence(self._producer, WRITE_TIMEOUT_S)
        except KafkaException as error:
            raise Unavailable(f"leases: {error.args[0].str()}") from error

    async def put(self, lease: Lease) -> None:
        """Store a lease.

        Raises Unavailable when Kafka did not confirm it in time (it may be stored all the same) or
        NotOwner.
        """
        await self._submit(lease.id, lease_record.encode(lease))

    async def remove(self, lease_id: str) -> None:
        """Delete a lease. Raises Unavailable or NotOwner."""
        await self._submit(lease_id, None)

    async def put_row(self, key: str, value: bytes | None) -> None:
        """Store a row of another kind; None: delete it. Raises as `put` does."""
        await self._submit(key, value)

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
            raise Unavailable(
                f"lease {key}: Kafka did not confirm the change within {WRITE_TIMEOUT_S:g} s"
            ) from None

    async def run(self) -> None:
        """Commit waiting changes until cancelled.

        Raises NotOwner when another proxy has taken over.
        """
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._commit_some()
        finally:
            _settle(self._waiting, NotOwner("the leases are another proxy's"))
            self._thread.shutdown(wait=False)

    async def _commit_some(self) -> None:
        batch = self._waiting[:CHANGES_PER_TRANSACTION_MAX]
        del self._waiting[:CHANGES_PER_TRANSACTION_MAX]
        began = self._clock.monotonic_s()
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._commit, batch)
        except Unavailable as error:
            _settle(batch, error)
        except NotOwner as error:
            _settle(batch, error)
            raise
        except asyncio.CancelledError:
            _settle(batch, NotOwner("the leases are another proxy's"))
            raise
        else:
            self.proved_at = began
            _settle(batch, None)

    def _commit(self, batch: list[_Change]) -> None:
        reports = DeliveryReports()
        try:
            with clients.fatal_errors():
                self._producer.begin_transaction()
                for change in batch:
                    self._producer.produce(
                        topics.LEASES,
                        key=change.key,
                        value=change.value,
                        partition=self.partition,
                        on_delivery=reports,
                    )
                self._producer.commit_transaction(WRITE_TIMEOUT_S)
        except KafkaException as error:
            self._abort(error.args[0])
        if reports.errors:
            raise Unavailable(f"leases: {reports.errors[0].str()}")

    def _abort(self, error: KafkaError) -> None:
        """Abort the transaction; raises NotOwner where we were fenced, else Unavailable."""
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
