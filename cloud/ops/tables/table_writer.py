"""Writes rows of compacted tables and waits until this server's tables have read them back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol, TypeVar

import orjson
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
REPAIRS_MAX: Final = 8
"""Times that a row is put back while others write over it."""

T = TypeVar("T")


class Kept(Protocol):
    """A row with a version."""

    @property
    def version(self) -> int:
        """The version; the first one is 1."""


class Line:
    """The records of a key since it had a certain version, in the order of the log.

    Of several records with the version after the one that stands, the first one stands; so does
    whatever follows a removal.
    """

    def __init__(self, own: bytes, version: int) -> None:
        """`own` is the record to be written, made of `version`; 0: of nothing."""
        self._own, self._version = own, version
        self._standing: bytes | None = None
        self._last: bytes | None = None
        self.is_accepted = False
        """Has the own record stood?"""

    @property
    def overwritten(self) -> bytes | None:
        """The record that stands, where a later one lies over it."""
        return None if self._standing == self._last else self._standing

    def put(self, value: bytes | None) -> None:
        """Takes the next record; None removes the row."""
        self._last = value
        if value is None:
            self._standing, self._version = None, 0
            return
        version = _version_of(value)
        if version > 0 and self._version in (0, version - 1):
            self._standing, self._version = value, version
            self.is_accepted = self.is_accepted or value == self._own


def _version_of(value: bytes) -> int:
    """Returns 0 for what holds no row."""
    try:
        return int(orjson.loads(value)["version"])
    except (ValueError, LookupError, TypeError):
        return 0


class TableWriter:
    """A producer, and a thread for blocking calls."""

    def __init__(self, config: KafkaConfig, tables: OpsTables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        self._config = config
        self._producer: Producer | None = None
        """Used by the thread alone, until `close`."""
        self._thread = ThreadPoolExecutor(1, "ops-writer")
        self.turns = asyncio.Lock()
        """Held from the reading of a row to its replacement."""

    async def replace(self, topic: str, key: str, before: Kept | None, row: BaseModel) -> bool:
        """Writes a row with the version after `before`. Raises Unavailable.

        False where another server's record with that version stands before it in the log: then
        that row is written once more, so that it is the last one, which readers and compaction
        take. It is missing for the moment between, and lost where this server dies in it.
        """
        value = row.model_dump_json().encode()
        line = Line(value, 0 if before is None else before.version)
        with self._tables.watching(topic, key, line.put):
            await self._write(topic, key, value)
            for _ in range(REPAIRS_MAX):
                if line.overwritten is None:
                    return line.is_accepted
                await self._write(topic, key, line.overwritten)
        raise Unavailable(f"{topic}: other servers change {key!r} all the time")

    async def write(self, topic: str, key: str, row: BaseModel | None) -> None:
        """Writes a row (None removes it). Raises Unavailable.

        On return the tables contain all records of the topic up to it.
        """
        await self._write(topic, key, None if row is None else row.model_dump_json().encode())

    async def _write(self, topic: str, key: str, value: bytes | None) -> None:
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
