"""The history of live events, with their times. No I/O.

The newest ENTRIES_MAX of all kinds together are held, so one device that comes and goes displaces
others only when the whole room is used. `history_log` stores them on `ew.history`, so they survive
a restart.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any, Final

from pydantic import BaseModel

ENTRIES_MAX: Final = 50_000
"""The most entries, some 300 bytes each."""
FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "device": ("state", "version", "epoch", "lost_readings", "backlog_readings", "removed"),
    "loss": ("lost", "missing", "opened"),
    "query": ("state", "registered", "paused", "detail"),
    "part": ("state", "pid", "restarts"),
    "repair": ("state", "query", "detail"),
    "request": ("state", "name"),
    "erasure": ("step", "detail"),
}
"""Kind of event → the facts of its entry."""
BESIDE: Final = "detail"
"""A fact that an entry says and that never begins one: that of a query changes every few seconds
while its state stays, and would displace all else within a day."""
_NAMES: Final = ("device", "name", "part", "id")


class Noted(BaseModel):
    """An entry of `ew.history`."""

    at: int
    """ms since 1970 UTC."""
    kind: str
    name: str
    """Name of the device, query or part, or id of the repair or erasure."""
    facts: dict[str, Any]
    """The new state."""


class Happening(Noted):
    """An entry with its position in the history."""

    number: int
    """Its position on `ew.history`."""


class Past:
    """The newest entries."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        entries_max: int = ENTRIES_MAX,
        write: Callable[[Noted], None] | None = None,
    ) -> None:
        """`write` stores an entry for all servers, and `take` receives it from there.

        Without `write` an entry is taken immediately.
        """
        self._now_ms = now_ms
        self._write = write
        self._entries: deque[Happening] = deque(maxlen=entries_max)
        self._next = 1
        self._begun: dict[tuple[str, str], Mapping[str, Any]] = {}
        """What the newest entry of a thing began with, for kinds with BESIDE. At ENTRIES_MAX it
        begins empty, which costs one entry more of each thing."""

    def note(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Notes live events of the kinds that have a history."""
        now_ms = self._now_ms()
        for event in events:
            wanted = FACTS.get(event["kind"])
            if wanted is None:
                continue
            name = next(str(event[key]) for key in _NAMES if event.get(key) is not None)
            facts = {key: event[key] for key in wanted if event.get(key) not in (None, "")}
            one = Noted(at=now_ms, kind=event["kind"], name=name, facts=facts)
            if not self._begins(one):
                continue
            if self._write is None:
                self.take(self._next, one)
            else:
                self._write(one)

    def take(self, number: int, one: Noted) -> None:
        """Takes an entry from `ew.history`."""
        if number < self._next:
            return  # It was read before.
        self._begins(one)
        self._entries.append(Happening(number=number, **one.model_dump()))
        self._next = number + 1

    def _begins(self, one: Noted) -> bool:
        """Returns whether it says more than the entry before it did, and remembers it."""
        if BESIDE not in FACTS.get(one.kind, ()):
            return True
        facts = {key: fact for key, fact in one.facts.items() if key != BESIDE}
        if self._begun.get((one.kind, one.name)) == facts:
            return False
        if len(self._begun) >= ENTRIES_MAX:
            self._begun.clear()
        self._begun[one.kind, one.name] = facts
        return True

    def since(self, at: int, kind: str) -> Iterator[Happening]:
        """Yields entries of a kind since a time, ms since 1970 UTC, newest first."""
        lately = takewhile(lambda one: one.at >= at, reversed(self._entries))
        return (one for one in lately if one.kind == kind)

    def near(self, at_min: int, at_max: int) -> Callable[[Noted], list[int]]:
        """Returns what finds the times of equal entries, among those between two times.

        All entries are looked through once, however many are then asked for.
        """
        found: dict[tuple[str, str], list[Noted]] = {}
        for one in self._entries:
            if at_min <= one.at <= at_max:
                found.setdefault((one.kind, one.name), []).append(one)
        return lambda one: [
            known.at for known in found.get((one.kind, one.name), ()) if known.facts == one.facts
        ]

    def newest(
        self, *, kind: str | None, name: str | None, before: int | None, limit: int
    ) -> list[Happening]:
        """Returns entries, newest first; with `before` only those with a smaller number."""
        found = (
            one
            for one in reversed(self._entries)
            if (kind is None or one.kind == kind)
            and (name is None or one.name == name)
            and (before is None or one.number < before)
        )
        return list(islice(found, limit))
