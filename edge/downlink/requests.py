"""What this device asked the cloud for, and what it was told: the book of its requests.

A consumer of the log reads what was asked (`device_requests`) and the replies (`ew_replies`); its
state is the book, so it survives whatever ends the agent. `edgewake-agent requests` reads it from
the log, also while the agent runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from edgewake.edge.log.consumer import Consumer, LogRenewedError
from edgewake.edge.log.event_log import EventLog
from edgewake.edge.log.forgetting import REQUESTS as CONSUMER
from edgewake.edge.log.tables.consumers import Missed
from edgewake.edge.log.tables.schema import reading
from edgewake.edge.log.tables.tables import read_consumers
from edgewake.edge.things.streams import streams_of
from edgewake.protocol.clock import Clock
from edgewake.protocol.downlink.downlink import REPLIES, REQUESTS
from edgewake.protocol.topics import stream_and_thing

log = logging.getLogger("edgewake.downlink")

WAITING_MAX: Final = 100
"""Requests without a reply that are remembered of the device, and of each thing behind it: as many
as the cloud takes of one. Its oldest go."""
WAITING_OF_ALL_MAX: Final = 1_000
"""Requests without a reply that are remembered of all together; the oldest of who has the most
go."""
ENDED_MAX: Final = 20
"""Replies that are remembered of all together; the oldest of who has the most go."""
BYTES_MAX: Final = 384 * 1024
"""Bytes of the book: it is written whole with each request and each reply. The oldest replies go,
the last one stays."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One request. Times in ms by the device's clock, 0 where it is not known."""

    id: str
    name: str = ""
    asked_at: int = 0
    expires_s: int = 0
    state: str = "waiting"
    """waiting; else answered, refused or expired, as the cloud said; expired also where it said
    nothing in time (`Book.at`)."""
    body: str = ""
    """The text of the reply."""
    detail: str = ""
    replied_at: int = 0
    thing: str = ""
    """The thing behind this device that asked; empty: the device itself."""

    @property
    def key(self) -> str:
        """What tells it from others here: ids are those of a device, or of a thing."""
        return key_of(self.id, self.thing)


def key_of(request_id: str, thing: str) -> str:
    """See `Entry.key`."""
    return f"{thing}/{request_id}" if thing else request_id


class Book:
    """A value: `asked` and `replied` give the next one."""

    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self.entries = dict(entries or {})
        """Requests by key, in the order in which something was last heard of them."""

    @classmethod
    def decode(cls, state: bytes | None) -> Book:
        """Read what `encode` made; empty without it. Raises ValueError, TypeError."""
        found = [Entry(**fields) for fields in orjson.loads(state)] if state else []
        return cls({entry.key: entry for entry in found})

    def encode(self) -> bytes:
        """Encode the state for the log."""
        return orjson.dumps(list(self.entries.values()))

    def at(self, now_ms: int) -> Book:
        """The book now: requests whose replies are no longer worth anything stop waiting.

        A reply that still comes is taken.
        """
        return Book({key: _at(entry, now_ms) for key, entry in self.entries.items()})

    def asked(self, at: int, fields: Mapping[str, Any], thing: str = "") -> Book:
        """A reading of REQUESTS.

        Streams have no order among them: the reply may have been read before.
        """
        from edgewake.protocol.downlink.request import (
            request_of,  # a device pays for it when it asks
        )

        try:
            request = request_of(fields)
        except ValueError as error:
            log.warning("a request is wrong: %s", error, extra={"event": "requests.wrong"})
            return self
        known = self.entries.get(key_of(request.id, thing))
        if known is not None and (known.asked_at or known.state == "waiting"):
            return self  # the same request again
        said = {
            "name": request.name,
            "asked_at": at,
            "expires_s": request.expires_s,
            "thing": thing,
        }
        return self._with(Entry(request.id, **said) if known is None else replace(known, **said))  # type: ignore[arg-type]

    def replied(self, at: int, fields: Mapping[str, Any], thing: str = "") -> Book:
        """A reading of REPLIES."""
        said = {name: str(fields.get(name) or "") for name in ("state", "body", "detail")}
        id_ = str(fields["id"])
        entry = self.entries.get(key_of(id_, thing), Entry(id_, thing=thing))
        return self._with(replace(entry, replied_at=at, **said))  # type: ignore[arg-type]

    def _with(self, entry: Entry) -> Book:
        entries = {key: one for key, one in self.entries.items() if key != entry.key} | {
            entry.key: entry
        }
        waiting = [one for one in entries.values() if one.state == "waiting"]
        ended = [one for one in entries.values() if one.state != "waiting"]
        gone = _too_many(waiting, WAITING_MAX, WAITING_OF_ALL_MAX)
        gone |= _too_many(ended, ENDED_MAX, ENDED_MAX)
        book = Book({key: one for key, one in entries.items() if key not in gone})
        left = [one.key for one in ended if one.key not in gone]
        while len(left) > 1 and len(book.encode()) > BYTES_MAX:
            del book.entries[left.pop(0)]
        return book


def _too_many(entries: Sequence[Entry], own_max: int, all_max: int) -> set[str]:
    """Keys of what goes, so that the device and each thing have `own_max` and all `all_max`.

    No thing pushes out what others asked while it has more than they have.
    """
    by_thing: dict[str, list[str]] = {}
    for entry in entries:
        by_thing.setdefault(entry.thing, []).append(entry.key)
    gone: set[str] = set()
    for keys in by_thing.values():
        beyond = max(0, len(keys) - own_max)
        gone.update(keys[:beyond])
        del keys[:beyond]
    for _ in range(len(entries) - len(gone) - all_max):
        gone.add(max(by_thing.values(), key=len).pop(0))
    return gone


def _at(entry: Entry, now_ms: int) -> Entry:
    if entry.state != "waiting" or now_ms < entry.asked_at + 1000 * entry.expires_s:
        return entry
    return replace(entry, state="expired", detail=f"no reply came within {entry.expires_s} s")


class BookKeeper:
    """Keeps the book."""

    def __init__(self, events: EventLog, clock: Clock, *, of_things: bool = False) -> None:
        """`of_things`: things behind this device ask, too."""
        self._events = events
        self._clock = clock
        self._streams = [
            name
            for stream in (REQUESTS, REPLIES)
            for name in streams_of(stream, of_things=of_things)
        ]
        self._book = Book()

    async def open(self) -> Consumer:
        """Before the first request comes. Raises LogClosedError, sqlite3.Error."""
        return await self._events.consumer(CONSUMER, self._streams)

    async def run(self) -> None:
        """Until cancelled or until the log is closed. Raises LogClosedError, sqlite3.Error."""
        while True:
            consumer = await self.open()
            try:
                self._book = _book(consumer.state)
                while True:
                    await self._take(consumer)
            except LogRenewedError:
                log.warning(
                    "the event log was damaged: requests go on with what was saved",
                    extra={"event": "requests.log_renewed"},
                )

    async def _take(self, consumer: Consumer) -> None:
        chunk = await consumer.read()
        now_ms = self._clock.now_ms()  # a request of the future would wait for ever
        for item in chunk.items:
            if isinstance(item, Missed):
                log.error(
                    "%d requests or replies are missing: %s",
                    item.count,
                    item.reason,
                    extra={"event": "requests.missed"},
                )
                continue
            stream, thing = stream_and_thing(item.stream)
            for at, fields in item.readings:
                self._book = (
                    self._book.asked(min(at, now_ms), fields, thing)
                    if stream == REQUESTS
                    else self._book.replied(at, fields, thing)
                )
        await consumer.commit(chunk.cursor, state=self._book.encode())

    def counts(self) -> dict[str, int]:
        """The counts for the status."""
        waiting = sum(
            entry.state == "waiting"
            for entry in self._book.at(self._clock.now_ms()).entries.values()
        )
        return {"waiting": waiting, "ended": len(self._book.entries) - waiting}


def kept_in(directory: Path) -> Book:
    """The book in a device's log, also while the agent runs. Raises LocalError."""
    with reading(directory) as db:
        return _book(
            next((found.state for found in read_consumers(db) if found.name == CONSUMER), None)
        )


def _book(state: bytes | None) -> Book:
    try:
        return Book.decode(state)
    except (ValueError, TypeError, KeyError):
        log.error("the book of requests cannot be read", extra={"event": "requests.no_book"})
        return Book()
