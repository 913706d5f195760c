"""Cursors that the server keeps for clients, each under a name that its client chose.

A cursor is what the client acknowledged last. They are in the compacted topic `ew.cursors`, so any
server knows them.

A name belongs to the client that chose it (for anonymous clients, to their address): nobody reaches
another's. An acknowledgement is answered once Kafka has it on all in-sync replicas, and a
subscriber gets what was answered anywhere before. The last one counts, also one that goes back.

What is asked for at the same time is answered together: one reading of the topic for all who
subscribe, one wait for Kafka for all who acknowledge. Who gives up is asked for no longer.

    NAMES_MAX   names of one holder; one more is refused
    KEPT_MS     after the last acknowledgement a name is free again
    TOTAL_MAX   names of all holders together
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson
from confluent_kafka import KafkaException, Producer

from edgewake.cloud.kafka import clients, topic_admin
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.delivery_reports import DeliveryReports
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

TOGETHER_MAX: Final = 1_000
"""Questions that are answered together: 4 MB of cursors at most. The rest come next."""


@dataclass(slots=True, eq=False)
class _Ask:
    """A name's cursor is looked up, or kept."""

    holder: str
    key: str
    value: bytes | None
    """A record of the topic to keep; None: look up what is kept."""
    answer: asyncio.Future[str | None]

    def tell(self, found: str | Exception | None) -> None:
        """Answer it, unless whoever asked has given up."""
        if self.answer.done():
            return
        if isinstance(found, Exception):
            self.answer.set_exception(found)
        else:
            self.answer.set_result(found)


_Answer: TypeAlias = tuple[_Ask, str | Exception | None]


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
        self.put(key, None if value is None else _decoded(value))

    def get(self, key: str) -> _Kept | None:
        """What is under a key."""
        return self._kept.get(key)

    def put(self, key: str, found: _Kept | None) -> None:
        """Have this under a key; None: nothing."""
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


def _unavailable(why: object) -> Unavailable:
    return Unavailable(f"this cursor cannot be kept at the moment: {why}")


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
        self._thread = ThreadPoolExecutor(1, "kept-cursors")
        """All that is done with these is done by it."""
        self._asks: deque[_Ask] = deque()
        """At most one of each subscription, and those who have given up since the last answers."""
        self._answering: asyncio.Task[None] | None = None

    async def cursor(self, holder: str, name: str) -> str | None:
        """The cursor that was acknowledged last under a name; None: nothing yet.

        Raises Full and Unavailable.
        """
        return await self._asked(holder, name, None)

    async def keep(self, holder: str, name: str, cursor: str) -> None:
        """Keep a cursor. Raises Full and Unavailable."""
        value = orjson.dumps({"cursor": cursor, "at": self._clock.now_ms()})
        await self._asked(holder, name, value)

    async def _asked(self, holder: str, name: str, value: bytes | None) -> str | None:
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._asks.append(_Ask(holder, f"{holder}|{name}", value, answer))
        if self._answering is None:
            self._answering = asyncio.create_task(self._answer_all(), name="kept-cursors")
        try:
            async with asyncio.timeout(ASK_S):
                return await answer
        except TimeoutError:
            raise Unavailable(f"Kafka did not answer for cursors within {ASK_S:.0f} s") from None

    async def _answer_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._asks:
                first = [self._asks.popleft() for _ in range(min(TOGETHER_MAX, len(self._asks)))]
                asks = [ask for ask in first if not ask.answer.done()]
                try:
                    answers = await loop.run_in_executor(self._thread, self._answers, asks)
                except Exception as error:  # each who asked gets it
                    answers = [(ask, error) for ask in asks]
                for ask, answer in answers:
                    ask.tell(answer)
        finally:
            self._answering = None

    def _answers(self, asks: Sequence[_Ask]) -> list[_Answer]:
        """In the thread: the cursor of who looks one up, nothing for who keeps one, or the error.

        Raises Unavailable for all of them.
        """
        looked_up = [ask for ask in asks if ask.value is None]
        kept = [ask for ask in asks if ask.value is not None]
        # What is free again here another server may have kept since.
        if looked_up or self._reader is None or any(self._table.old(ask.holder) for ask in kept):
            self._read()
        return [(ask, self._found(ask)) for ask in looked_up] + self._write(kept)

    def _found(self, ask: _Ask) -> str | Exception | None:
        why = self._table.refusal(ask.key)
        return self._table.cursor(ask.key) if why is None else Full(why)

    def _write(self, asks: Sequence[_Ask]) -> list[_Answer]:
        """Write what is to be kept, and wait for Kafka once for all of it."""
        if not asks:
            return []
        producer = self._connected()
        unanswered = _unavailable(f"no answer within {WRITE_S:.0f} s")
        before = {ask.key: self._table.get(ask.key) for ask in asks}
        answers: dict[_Ask, str | Exception | None] = {}
        reports: dict[_Ask, DeliveryReports] = {}
        for ask in asks:
            why = self._table.refusal(ask.key)
            answers[ask] = unanswered if why is None else Full(why)
            if why is None:
                try:
                    reports[ask] = self._produce(producer, ask)
                except (BufferError, KafkaException) as error:
                    answers[ask] = _unavailable(error)
        producer.flush(WRITE_S)
        for ask, report in reports.items():
            if report.are_in():
                answers[ask] = _unavailable(report.errors[0]) if report.errors else None
        failed = {ask.key for ask, answer in answers.items() if type(answer) is Unavailable}
        if failed:
            self._undo(failed, before, answers)
        return list(answers.items())

    def _undo(
        self, failed: set[str], before: Mapping[str, _Kept | None], answers: Mapping[_Ask, Any]
    ) -> None:
        """Have under these keys what was there before, and what Kafka has taken since.

        Whoever looks one up reads the topic's end first: what Kafka took without a word is there.
        """
        self._producer = None  # what it has not sent yet is never sent
        for key in failed:
            self._table.put(key, before[key])
        for ask, answer in answers.items():
            if answer is None and ask.key in failed:
                self._table.take(ask.key, ask.value)

    def _produce(self, producer: Producer, ask: _Ask) -> DeliveryReports:
        reports = DeliveryReports()
        for old in self._table.old(ask.holder):
            producer.produce(topics.CURSORS, key=old, value=None, partition=0)
            self._table.take(old, None)
        producer.produce(
            topics.CURSORS, key=ask.key, value=ask.value, partition=0, on_delivery=reports
        )
        self._table.take(ask.key, ask.value)  # the bounds hold for those behind it, too
        return reports

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
