"""Cursors that the server keeps for clients, each under a name that its client chose: what it
acknowledged last. They lie in the compacted topic `ew.cursors`, so any server knows them.

A name belongs to who chose it (of the anonymous, to each client's address): nobody reaches
another's. An acknowledgement is answered once Kafka has it on all in-sync replicas, and who
subscribes is shown what was answered anywhere before. The last one counts, also one that goes back.

    NAMES_MAX   names of one holder; one more is refused
    KEPT_MS     after the last acknowledgement a name is free again
    TOTAL_MAX   names of all holders together
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import Final

import orjson
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.table_reader import TableReader
from edgewake.cloud.log.hub import Full
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
WRITE_S: Final = 10.0
READ_S: Final = 10.0


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
        self._one_at_a_time = asyncio.Lock()
        self._reader: TableReader | None = None
        self._producer: Producer | None = None

    async def cursor(self, holder: str, name: str) -> str | None:
        """What was acknowledged last under a name; None: nothing yet. Raises Full and
        Unavailable.
        """
        key = f"{holder}|{name}"
        async with self._one_at_a_time:
            await asyncio.to_thread(self._read)
            self._check(key)
            return self._table.cursor(key)

    async def keep(self, holder: str, name: str, cursor: str) -> None:
        """Keep a cursor. Raises Full and Unavailable."""
        key = f"{holder}|{name}"
        value = orjson.dumps({"cursor": cursor, "at": self._clock.now_ms()})
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()

        def on_delivery(error: KafkaError | None, _: Message) -> None:
            loop.call_soon_threadsafe(_settle, written, error)

        async with self._one_at_a_time:
            producer = await asyncio.to_thread(self._connected)
            self._check(key)
            free = self._table.old(holder)
        try:
            for old in free:
                producer.produce(topics.CURSORS, key=old, value=None, partition=0)
            producer.produce(
                topics.CURSORS, key=key, value=value, partition=0, on_delivery=on_delivery
            )
        except (BufferError, KafkaException) as error:
            raise Unavailable(f"this cursor cannot be kept at the moment: {error}") from error
        flushing = asyncio.create_task(asyncio.to_thread(producer.flush, WRITE_S))
        try:
            async with asyncio.timeout(WRITE_S):
                await written
        except TimeoutError:
            self._producer = None  # the next one makes another
            raise Unavailable(f"Kafka did not take this cursor within {WRITE_S:.0f} s") from None
        finally:
            await flushing
        async with self._one_at_a_time:
            for old in free:
                self._table.take(old, None)
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
        except Unavailable:  # the next question makes another one, which reads all anew
            self._reader.close()
            self._reader = None
            raise

    def _connected(self) -> Producer:
        if self._producer is None:
            topic_admin.ensure_topics(self._config, [topics.CURSORS])
            self._producer = clients.producer(self._config, f"{self._name}-cursors")
        return self._producer


def _settle(written: asyncio.Future[None], error: KafkaError | None) -> None:
    if written.done():
        return
    if error is None:
        written.set_result(None)
    else:
        written.set_exception(Unavailable(f"this cursor cannot be kept at the moment: {error}"))
