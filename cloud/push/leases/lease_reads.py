"""Receives from the access servers which clients read at the moment.

See `edgewake.protocol.leases.lease_read`.

Every proxy reads the whole topic from its end on and passes on what is of its own leases; nothing
is missed for long, because the news of an open stream is repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.offsets import GONE
from edgewake.cloud.push.leases.poll_thread import run_in_thread
from edgewake.protocol import topics
from edgewake.protocol.errors import Unavailable
from edgewake.protocol.leases import lease_read, lease_record
from edgewake.protocol.leases.lease_read import LeaseRead

log = logging.getLogger("edgewake.push")

POLL_RECORDS: Final = 500
RETRY_S: Final = (0.2, 5.0)
"""First and longest wait between attempts to reach Kafka."""
_CONSUMER: Final[dict[str, Any]] = {"fetch.wait.max.ms": clients.FOLLOWER_WAIT_MS}


class LeaseReads:
    """`on_read(lease id, read)` is called on the event loop."""

    def __init__(
        self,
        config: KafkaConfig,
        name: str,
        *,
        on_read: Callable[[str, LeaseRead], None],
        rng: random.Random,
    ) -> None:
        self._config = config
        self._name = name
        self._on_read = on_read
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()

    async def run(self) -> None:
        """Listen until cancelled."""
        await run_in_thread("lease-reads", self._blocking, self._stop)

    def _blocking(self) -> None:
        wait = RETRY_S[0]
        while not self._stop.is_set():
            try:
                topic_admin.ensure_partitions(
                    self._config, [topics.LEASE_READS], lease_record.PARTITIONS
                )
                self._listen()
            except Unavailable as error:
                log.warning("waiting for Kafka: %s", error, extra={"event": "kafka.away"})
                self._stop.wait(wait * (0.5 + self._rng.random()))
                wait = min(wait * 2, RETRY_S[1])

    def _listen(self) -> None:
        consumer: Consumer = clients.consumer(self._config, f"{self._name}-reads", **_CONSUMER)
        try:
            consumer.assign(
                [
                    TopicPartition(topics.LEASE_READS, p, OFFSET_END)
                    for p in range(lease_record.PARTITIONS)
                ]
            )
            while not self._stop.is_set():
                found = []
                for message in consumer.consume(POLL_RECORDS, 0.1):
                    error = message.error()
                    if error is not None and error.code() in GONE:
                        raise Unavailable(f"lease reads: {error.str()}")  # read from the end again
                    if error is None and message.value() is not None:
                        try:
                            found.append(
                                (message.key().decode(), lease_read.decode(message.value()))
                            )
                        except ValueError as wrong:
                            log.error(
                                "a lease's read cannot be read: %s",
                                wrong,
                                extra={"event": "push.read_unreadable"},
                            )
                if found and not self._loop.is_closed():
                    self._loop.call_soon_threadsafe(self._pass_on, found)
        except KafkaException as error:
            raise Unavailable(f"lease reads: {error.args[0].str()}") from error
        finally:
            consumer.close()

    def _pass_on(self, found: list[tuple[str, LeaseRead]]) -> None:
        for lease_id, read in found:
            self._on_read(lease_id, read)
