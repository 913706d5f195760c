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
import itertools
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
"""Names of all together, some 500 bytes of memory each."""
FREED_MAX: Final = 20
"""Names of others that one acknowledgement frees: more than the one that it may add, so that those
who never come back do not fill the place of all."""
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
        """By key, those that were acknowledged longest ago first."""
        self._of: dict[str, set[str]] = {}
        """The keys of each holder."""

    def take(self, key: str, value: bytes | None) -> None:
        """A record of the topic. Raises ValueError for one that cannot be read."""
        found = None if value is None else _decoded(value)
        self._kept.pop(key, None)
        own = self._of.setdefault(key.rpartition("|")[0], set())
        if found is None:
            own.discard(key)
        else:
            self._kept[key] = found
            own.add(key)
        if not own:
            del self._of[key.rpartition("|")[0]]

    def cursor(self, key: str) -> str | None:
        """The cursor under a key, unless it is too old."""
        found = self._kept.get(key)
        return None if found is None or self._is_old(key) else found.cursor

    def _is_old(self, key: str) -> bool:
        return self._clock.now_ms() - self._kept[key].at_ms > KEPT_MS

    def old(self, holder: str) -> list[str]:
        """The keys that are free again: a holder's, and some of those who never came back."""
        own = {key for key in self._of.get(holder, ()) if self._is_old(key)}
        first = itertools.islice(self._kept, FREED_MAX)
        return sorted(own | {key for key in first if self._is_old(key)})

    def refusal(self, key: str) -> str | None:
        """Why one more name may not be kept; None where it may."""
        if key in self._kept:
            return None
        holder = key.rpartition("|")[0]
        old = self.old(holder)
        own = self._of.get(holder, set())
        if len(own) >= NAMES_MAX and own.isdisjoint(old):
            return f"{NAMES_MAX} names are kept for you already, as many as one may have"
        if len(self._kept) >= TOTAL_MAX and not old:
            return f"{TOTAL_MAX} names are kept here already"
        return None


def _decoded(value: bytes) -> _Kept:
    found = orjson.loads(value)
    if not isinstance(found, dict) or not isinstance(found.get("cursor"), str):
        raise ValueError("expected an object with cursor and at")
    return _Kept(found["cursor"][:TEXT_MAX], int(found.get("at") or 0))


class KeptCursors:
    """Keeps cursors by holder and name in Kafka, and knows those that other servers kept."""

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
        if self._table.old(holder):  # another server may have kept one of them since
            self._read()
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
