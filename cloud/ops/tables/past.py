"""What happened lately, for people who come after: the live events once more, with their times.

In memory, of this server since it started; the newest ENTRIES_MAX of all together, so that one
device that comes and goes takes the room of others only when all of it is used. No I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel

ENTRIES_MAX: Final = 50_000
"""Entries kept, some 300 bytes each."""
FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "device": ("state", "version", "epoch", "lost_readings", "backlog_readings", "removed"),
    "query": ("state", "registered", "paused", "detail"),
    "part": ("state", "pid", "restarts"),
    "repair": ("state", "query", "detail"),
    "request": ("state", "name"),
    "erasure": ("step", "detail"),
}
"""Kind of event → what of it is kept."""
_NAMES: Final = ("device", "name", "part", "id")


class Happening(BaseModel):
    """Something that changed."""

    number: int
    """Grows by one with each, since this server started."""
    at: int
    """ms since 1970 UTC."""
    kind: str
    name: str
    """Name of the device, query or part, or the id of the repair or erasure."""
    facts: dict[str, Any]
    """What it was from then on."""


class Past:
    """The ring of what happened."""

    def __init__(self, now_ms: Callable[[], int], entries_max: int = ENTRIES_MAX) -> None:
        self._now_ms = now_ms
        self._entries: deque[Happening] = deque(maxlen=entries_max)
        self._next = 1

    def note(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Remember live events of the kinds that have a past."""
        now_ms = self._now_ms()
        for event in events:
            wanted = FACTS.get(event["kind"])
            if wanted is None:
                continue
            name = next(str(event[key]) for key in _NAMES if event.get(key) is not None)
            facts = {key: event[key] for key in wanted if event.get(key) not in (None, "")}
            one = Happening(
                number=self._next, at=now_ms, kind=event["kind"], name=name, facts=facts
            )
            self._entries.append(one)
            self._next += 1

    def newest(
        self, *, kind: str | None, name: str | None, before: int | None, limit: int
    ) -> list[Happening]:
        """The newest first; `before`: those with a smaller number."""
        found = (
            one
            for one in reversed(self._entries)
            if (kind is None or one.kind == kind)
            and (name is None or one.name == name)
            and (before is None or one.number < before)
        )
        return list(islice(found, limit))
