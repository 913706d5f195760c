"""Cursors that the server keeps for clients, each under a name that its client chose.

A cursor is what the client acknowledged last. They are in the compacted topic `ew.cursors`, so any
server knows them.

A name belongs to the client that chose it (for anonymous clients, to their address): nobody reaches
another's. An acknowledgement is answered once Kafka has it on all in-sync replicas, and a
subscriber gets what was answered anywhere before. The last one counts, also one that goes back.

    NAMES_MAX   names of one holder; one more is refused
    KEPT_MS     after the last acknowledgement a name is free again
    TOTAL_MAX   names of all holders together
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.log.hub_bounds import Full
from edgewake.protocol import topics
from edgewake.protocol.clock import Clock
from edgewake.protocol.cursor import TEXT_MAX
from edgewake.protocol.errors import Unavailable

NAMES_MAX: Final = 100
"""Names of one holder: a program has some, one that makes a new one each time is in a loop."""
TOTAL_MAX: Final = 50_000
"""Names of all together, some 300 bytes of memory each."""
KEPT_MS: Final = 30 * 86_400_000
"""A month without an acknowledgement: streams are not kept for as long by default."""
WRITE_S: Final = 4.0
READ_S: Final = 4.0
"""Time for one request: a server that stops waits for the last one, and must be gone within
five."""
ASK_S: Final = 12.0
"""For an answer, with the questions before it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kept:
    cursor: str
    at_ms: int


class Table:
    """What is in the topic. Pure."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._of: Counter[str] = Counter()

    def take(self, key: str, value: bytes | None) -> None:
        """A record of the topic. Raises ValueError for one that cannot be read."""
        before = self._kept.pop(key, None)
        holder = key.rpartition("|")[0]
        if before is not None:
            self._of[holder] -= 1
        if value is None:
            return
        found = orjson.loads(value)
        if not isinstance(found, dict) or not isinstance(found.get("cursor"), str):
            raise ValueError("expected an object with cursor and at")
        self._kept[key] = _Kept(found["cursor"][:TEXT_MAX], int(found.get("at") or 0))
        self._of[holder] += 1

    def cursor(self, key: str) -> str | None:
        """The cursor under a key, unless it is too old."""
        found = self._kept.get(key)
        is_old = found is not None and self._clock.now_ms() - found.at_ms > KEPT_MS
        return None if found is None or is_old else found.cursor

    def old(self, holder: str) -> list[str]:
        """The keys of a holder that are free again."""
        now = self._clock.now_ms()
        return [
            key
            for key, found in self._kept.items()
            if key.rpartition("|")[0] == holder and now - found.at_ms > KEPT_MS
        ]

    def refusal(self, key: str) -> str | None:
        """Why one more name may not be kept; None where it may."""
        if key in self._kept:
            return None
        holder = key.rpartition("|")[0]
        if self._of[holder] >= NAMES_MAX and len(self.old(holder)) == 0:
            return f"{NAMES_MAX} names are kept for you already, as many as one may have"
        if len(self._kept) >= TOTAL_MAX:
            return f"{TOTAL_MAX} names are kept here already"
        return None


class KeptCursors:
    """See the module."""

    def __init__(self, config: KafkaConfig, name: str, clock: Clock) -> None:
        self._config, self._name, self._clock = config, name, clock
        self._table = Table(clock)
        self._reader: TableReader | None = None
        self._producer: Producer | None = None
        # All that is done with these is done by one thread: who gives up waiting for a question
        # leaves it behind there, and the next one has to wait for it.
        self._thread = ThreadPoolExecutor(1, "kept-cursors")

    async def cursor(self, holder: str, name: str) -> str | None:
        """The cursor that was acknowledged last under a name; None: nothing yet.

        Raises Full and Unavailable.
        """
        key = f"{holder}|{name}"

        def find() -> str | None:
            self._read()
            self._check(key)
            return self._table.cursor(key)

        return await self._asked(find)

    async def keep(self, holder: str, name: str, cursor: str) -> None:
        """Keep a cursor. Raises Full and Unavailable."""
        key = f"{holder}|{name}"
        value = orjson.dumps({"cursor": cursor, "at": self._clock.now_ms()})
        await self._asked(lambda: self._write(holder, key, value))

    async def _asked(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(ASK_S):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except TimeoutError:
            raise Unavailable(f"Kafka did not answer for cursors within {ASK_S:.0f} s") from None

    def _write(self, holder: str, key: str, value: bytes) -> None:
        producer = self._connected()
        self._check(key)
        freed = self._table.old(holder)
        errors: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        try:
            for one in freed:
                producer.produce(topics.CURSORS, key=one, value=None, partition=0)
            producer.produce(
                topics.CURSORS, key=key, value=value, partition=0, on_delivery=on_delivery
            )
        except (BufferError, KafkaException) as error:
            raise Unavailable(f"this cursor cannot be kept at the moment: {error}") from error
        if producer.flush(WRITE_S) or errors:
            self._producer = None  # the next one makes another
            why = errors[0] if errors else f"no answer within {WRITE_S:.0f} s"
            raise Unavailable(f"this cursor cannot be kept at the moment: {why}")
        for one in freed:
            self._table.take(one, None)
        self._table.take(key, value)

    def _check(self, key: str) -> None:
        why = self._table.refusal(key)
        if why is not None:
            raise Full(why)

    def _read(self) -> None:
        if self._reader is None:
            topic_admin.ensure_topics(self._config, [topics.CURSORS])
            tables = {topics.CURSORS: self._table.take}
            self._reader = TableReader(self._config, f"{self._name}-cursors", tables)
        try:
            self._reader.read_all(idle_s=READ_S)
        except Unavailable:  # the next question makes another one, which reads all again
            self._reader.close()
            self._reader = None
            raise

    def _connected(self) -> Producer:
        if self._producer is None:
            topic_admin.ensure_topics(self._config, [topics.CURSORS])
            self._producer = clients.producer(self._config, f"{self._name}-cursors")
        return self._producer
