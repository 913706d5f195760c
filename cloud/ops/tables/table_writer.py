"""Writes rows of compacted tables and waits until this server's tables have read them back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from confluent_kafka import KafkaException, Producer
from pydantic import BaseModel

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.delivery_reports import DeliveryReports
from edgewake.cloud.ops.tables.tables import OpsTables
from edgewake.protocol.clock import Clock
from edgewake.protocol.errors import Unavailable

WRITE_TIMEOUT_S: Final = 10.0
"""Seconds that Kafka may take to confirm a row."""
READ_BACK_TIMEOUT_S: Final = 5.0
"""Seconds that the tables may take to read it back."""
READ_BACK_POLL_S: Final = 0.02

T = TypeVar("T")


class TableWriter:
    """A producer, and a thread for blocking calls."""

    def __init__(self, config: KafkaConfig, tables: OpsTables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._config = config
        self._producer: Producer | None = None
        """Used by the thread alone, until `close`."""
        self._thread = ThreadPoolExecutor(1, "ops-writer")

    async def write(self, topic: str, key: str, row: BaseModel | None) -> None:
        """Writes a row (None removes it). Raises Unavailable.

        On return the tables contain all records of the topic up to it.
        """
        value = None if row is None else row.model_dump_json().encode()
        offset = await self.blocking(lambda: self._produce(topic, key, value))
        deadline_s = self._clock.monotonic_s() + READ_BACK_TIMEOUT_S
        while self._tables.read_to.get(topic, -1) < offset:
            if self._clock.monotonic_s() > deadline_s:
                raise Unavailable(
                    f"{topic}: {key!r} is written, but was not read back within "
                    f"{READ_BACK_TIMEOUT_S:g} s"
                )
            await self._clock.sleep(READ_BACK_POLL_S)

    async def remove_unread(self, topic: str, key: str) -> None:
        """Removes a row of a table that this server does not read. Raises Unavailable."""
        await self.blocking(lambda: self._produce(topic, key, None))

    def _produce(self, topic: str, key: str, value: bytes | None) -> int:
        reports = DeliveryReports()
        producer = self._producer or clients.producer(
            self._config,
            "ops-tables-writer",
            **{"message.timeout.ms": round(WRITE_TIMEOUT_S * 1000)},
        )
        self._producer = None  # One that fails may never reach a broker again.
        try:
            producer.produce(topic, key=key, value=value, partition=0, on_delivery=reports)
            producer.flush(WRITE_TIMEOUT_S + 1)
        except (KafkaException, BufferError) as error:
            raise Unavailable(f"{topic}: {key!r}: {error}") from error
        if not reports.offsets:
            why = reports.why("Kafka did not confirm it in time")
            raise Unavailable(f"{topic}: {key!r}: {why}")
        self._producer = producer
        return reports.offsets[0]

    def blocking(self, work: Callable[[], T]) -> Awaitable[T]:
        """Runs a blocking call in the writer's thread."""
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Waits up to a second for what is being written, and stops the thread."""
        self._thread.shutdown()
        if self._producer is not None:
            self._producer.flush(1)
