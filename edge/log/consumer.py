"""A consumer of the event log: reads readings, and commits its cursor with its results.

    consumer = await events.consumer("mean", ["speed"])      # durable from now on: nothing that it
                                                             needs goes
    state = restore(consumer.state)                          # bytes of its last commit; None at the
                                                             first time
    while True:
        chunk = await consumer.read()                        # what follows the last chunk; waits
                                                             for more
        for item in chunk.items:                             # Received(stream, first, readings) or
                                                             Missed(stream, first, count, reason)
            state, derived = process(state, item)
        await consumer.commit(chunk.cursor, state=dump(state), derived={"speed_mean": derived},
        wait=False)

Contract:

* **Exactly once.** Cursor, state and derived readings of a commit, and of all commits before it,
  become durable in one transaction, or none of them. After a crash a consumer stands where its last
  durable commit left it and reads the same readings at the same positions again, cut into other
  chunks perhaps: what it makes must depend on the readings, their order and the state, not on where
  a chunk ends.
* **Order.** Within a stream in the order of acceptance, without holes: what is not there is a
  `Missed` with its count and reason. Between streams no order is promised. A field without a value
  is left out.
* **Processing goes on meanwhile.** In mode `hml` a reading is handed out while it is being written.
  What is derived from it is written after it, in the same order and by the same thread, so nothing
  can survive of what its input did not. Whoever acts outside the log (an alert, a relay) waits for
  `commit` first.
* **Bounds.** What only consumers still need is kept up to `log.consumer_bytes`; beyond, the oldest
  goes, and who had not read it gets a `Missed` of reason `lagged`. A consumer that is not used any
  more has to be forgotten (`EventLog.forget_consumer`); until then the same bound holds for it. A
  state has at most STATE_BYTES_MAX bytes. Derived readings wait for room in their stream's queue
  like any others.
* **Things.** Who names `of_all_things(stream)` among its streams reads those of all things behind
  this device, also of those that are first heard of later; of these nothing is left out, either.
* **Damage.** When a damaged log was replaced, `read`, `poll`, `submit` and `commit` raise
  LogRenewedError once: begin again from `state`, which is None where it could not be saved.

For one task or thread only.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, Protocol

from edgewake.edge.log.keeping.work import Commit
from edgewake.edge.log.state import LogBusyError
from edgewake.edge.log.store import LogStore
from edgewake.edge.log.tables.codec import Reading
from edgewake.edge.log.tables.consumers import (
    ConsumerState,
    Missed,
    Passed,
    RawBatch,
    Received,
    is_any_of,
)
from edgewake.edge.log.writing.writer import LogWriter
from edgewake.protocol.errors import LocalError
from edgewake.protocol.topics import is_of_all_things

READ_READINGS: Final = 10_000
"""Readings in a chunk, about."""
READ_BYTES: Final = 1 << 20
"""Bytes of rows that are read for it at once."""
TAIL_READINGS_MAX: Final = 5_000
"""Readings of a stream that wait in memory for a consumer, some MB and the same for all consumers.
Beyond, they are forgotten there, and read from the log."""
STATE_BYTES_MAX: Final = 1 << 20
"""Bytes of a state: it is written whole with each commit."""


class LogRenewedError(LocalError):
    """The log was damaged: a new one holds what could be saved."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What was read, and where the consumer stands after it."""

    items: Sequence[Received | Missed]
    cursor: Mapping[str, int]
    """Position by stream."""


class Tail:
    """The newest readings of one stream, in memory.

    The writer's thread adds, and forgets at the bound; the consumer's thread reads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: deque[Received] = deque()
        """At most TAIL_READINGS_MAX readings."""
        self._count = 0

    def add(self, part: Received) -> None:
        """Note readings that the writer has just received."""
        with self._lock:
            if self._count + len(part.readings) > TAIL_READINGS_MAX:
                self._forget()
                return
            self._parts.append(part)
            self._count += len(part.readings)

    def clear(self) -> None:
        """Forget."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        self._parts.clear()
        self._count = 0

    def has_after(self, position: int) -> bool:
        """Is what follows a position here?"""
        with self._lock:
            return self._leads_on(position)

    def _leads_on(self, position: int) -> bool:
        while self._parts and self._parts[0].last <= position:
            self._pop()
        return bool(self._parts) and self._parts[0].first <= position + 1

    def after(self, position: int, readings_max: int) -> Iterator[Received]:
        """What follows a position, without holes; about as much as the bound allows."""
        end = position + readings_max
        while position < end:
            with self._lock:
                if not self._leads_on(position):
                    return
                part = self._pop()
            yield Received(
                part.stream,
                position + 1,
                [_present(reading) for reading in part.readings[position + 1 - part.first :]],
            )
            position = part.last

    def _pop(self) -> Received:
        part = self._parts.popleft()
        self._count -= len(part.readings)
        return part


def _present(reading: Reading) -> Reading:
    t, fields = reading
    return (
        reading
        if None not in fields.values()
        else (t, {name: value for name, value in fields.items() if value is not None})
    )


class Commits(Protocol):
    """Who tells of commits: the log."""

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something that commits change. Raises LogClosedError."""


class Consumer:
    """One consumer's way out of the log, made by `EventLog.consumer`."""

    def __init__(self, events: Commits, writer: LogWriter, found: ConsumerState) -> None:
        self.name = found.name
        self._events = events
        self._writer = writer
        self._followed = frozenset(found.cursor)
        """As registered, with names for all things' streams."""
        self._tails: dict[str, Tail] = {}
        self._known = 0
        """Streams that the log had when those of new things were looked for."""
        self._renewed = False
        self._begin(found)

    def _begin(self, found: ConsumerState) -> None:
        self.state = found.state
        """As of the last durable commit when it was opened, or when the log was renewed."""
        self._cursor = dict(found.cursor)
        self._missed = 0
        self._known = 0
        for stream in found.cursor:
            self._follow(stream)

    def _follow(self, stream: str) -> None:
        """Have a place for its newest readings; a name for all things' streams has none."""
        if not is_of_all_things(stream):
            self._tails.setdefault(stream, Tail())

    def _meet_things(self) -> None:
        """Follow the streams of things that came after this was registered."""
        # A log never has fewer streams than before, so their number alone tells of new ones.
        if self._writer.store.stream_count == self._known:
            return
        names = self._writer.store.stream_names
        self._known = len(names)
        for stream in names:
            if stream not in self._tails and is_any_of(stream, self._followed):
                self._cursor.setdefault(stream, 0)
                self._follow(stream)

    @property
    def cursor(self) -> Mapping[str, int]:
        """The last position that was read, by stream."""
        return dict(self._cursor)

    async def read(self, readings_max: int = READ_READINGS) -> Chunk:
        """What follows, as soon as there is something. Raises LogClosedError, LogRenewedError."""
        while True:
            await self._events.until(self._has_more)
            self._check()
            items: list[Received | Missed] = list(self._from_memory(readings_max))
            for stream in self._to_read():
                answer = self._writer.ask(self._question(stream, readings_max))
                items += self._from_log(stream, *await asyncio.wrap_future(answer))
            if items:
                return self._chunk(items)

    def poll(self, readings_max: int = READ_READINGS) -> Chunk:
        """`read` for threads: what there is now, perhaps nothing."""
        self._check()
        self._meet_things()
        items: list[Received | Missed] = list(self._from_memory(readings_max))
        for stream in self._to_read():
            items += self._from_log(
                stream, *self._writer.ask(self._question(stream, readings_max)).result()
            )
        return self._chunk(items)

    async def commit(
        self,
        cursor: Mapping[str, int],
        *,
        state: bytes | None = None,
        derived: Mapping[str, Sequence[Reading]] | None = None,
        wait: bool = True,
    ) -> None:
        """Commit a chunk's cursor, the state after it, and the checked readings made of it.

        `state` None: unchanged; `derived`: readings by stream.

        Waits for room in the queues of `derived`, and, with `wait`, until it is durable. Raises
        LogClosedError, LogRenewedError.
        """
        while True:
            try:
                durable = self.submit(cursor, state=state, derived=derived, is_awaited=wait)
                break
            except LogBusyError:
                await self._events.until(lambda: self._writer.has_room_for(*(derived or ())))
        if wait:
            await asyncio.wrap_future(durable)

    def submit(
        self,
        cursor: Mapping[str, int],
        *,
        state: bytes | None = None,
        derived: Mapping[str, Sequence[Reading]] | None = None,
        is_awaited: bool = False,
    ) -> Future[None]:
        """Commit without waiting; the answer comes when it is durable, early if somebody waits.

        Raises LogBusyError, LogClosedError, LogRenewedError.
        """
        self._check()
        if not all(cursor[stream] <= self._cursor.get(stream, -1) for stream in cursor):
            raise ValueError(f"{self.name}: commits a cursor beyond what it read: {cursor}")
        if state is not None and len(state) > STATE_BYTES_MAX:
            raise ValueError(
                f"{self.name}: a state of {len(state)} bytes: expected at most {STATE_BYTES_MAX}"
            )
        if derived and not self._tails.keys().isdisjoint(derived):
            raise ValueError(f"{self.name}: derives a stream that it reads")
        answer = self._writer.commit(
            Commit(
                derived or {}, {}, self.name, Passed(dict(cursor), state, self._missed), is_awaited
            )
        )
        self._missed = 0
        return answer

    def offer(self, part: Received) -> bool:
        """Called by the writer's thread: these readings are being written, or were just now.

        Are they of its streams?
        """
        tail = self._tails.get(part.stream)
        if tail is not None:
            tail.add(part)
        return tail is not None or is_any_of(part.stream, self._followed)

    def renew(self) -> None:
        """Called by the writer's thread: the log is another one."""
        self._renewed = True

    def _check(self) -> None:
        if self._renewed:
            self._renewed = False
            for tail in self._tails.values():
                tail.clear()
            found = self._writer.consumer(self.name) or ConsumerState(self.name, {})
            if not self._followed <= found.cursor.keys():  # nobody told the new log of it
                streams = tuple(self._followed)
                self._writer.ask(lambda store: store.register(self.name, streams, at_end=False))
            self._begin(replace(found, cursor=dict.fromkeys(self._tails, 0) | dict(found.cursor)))
            raise LogRenewedError(f"{self.name}: the event log was damaged and replaced")

    def _has_more(self) -> bool:
        self._meet_things()
        return (
            self._renewed
            or any(tail.has_after(self._cursor[stream]) for stream, tail in self._tails.items())
            or next(self._to_read(), None) is not None
        )

    def _to_read(self) -> Iterator[str]:
        store = self._writer.store
        for stream, tail in self._tails.items():
            at = self._cursor[stream]
            # While a damaged log is salvaged an earlier reading may yet be found.
            if store.last(stream) > at and not store.is_salvaging and not tail.has_after(at):
                yield stream

    def _from_memory(self, readings_max: int) -> Iterator[Received]:
        for stream, tail in self._tails.items():
            for part in tail.after(self._cursor[stream], readings_max):
                self._cursor[stream] = part.last
                yield part

    def _question(
        self, stream: str, readings_max: int
    ) -> Callable[[LogStore], tuple[list[RawBatch | Missed], int]]:
        at = self._cursor[stream]
        return lambda store: store.read(stream, at, readings_max=readings_max, bytes_max=READ_BYTES)

    def _from_log(
        self, stream: str, found: Sequence[RawBatch | Missed], through: int
    ) -> Iterator[Received | Missed]:
        for one in found:
            yield one if isinstance(one, Missed) else one.received()
        self._cursor[stream] = through

    def _chunk(self, items: Sequence[Received | Missed]) -> Chunk:
        self._missed += sum(item.count for item in items if isinstance(item, Missed))
        return Chunk(items, self.cursor)
