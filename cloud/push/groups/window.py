"""Decides which member of a group gets which event next, and records what is done. Pure.

    free ──take──▶ held ──done──▶ done
      ▲             │
      └─ released, or its time is over: given again, with a higher count

The window begins at the oldest event that is not done. It is bounded, so one event that nobody
acknowledges holds back at most EVENTS_MAX others, until its own time is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.log.subscription import Positions
from edgewake.protocol.cursor import Position
from edgewake.protocol.leases.group_record import Held, Place

EVENTS_MAX: Final = 2000
"""Events of a group's window, done ones among them: what its row names, 60 KB."""
BYTES_MAX: Final = 2 * 1024 * 1024
"""Bytes of its events; the last one may pass it."""
HELD_MAX: Final = 1000
"""Events that may be held at a time by all of a group together."""


@dataclass(slots=True)
class _Entry:
    place: Place
    before: Position
    """Its partition's position before it."""
    event: bytes
    count: int = 0
    until: int = 0
    """When it may be given, ms since 1970 UTC."""
    is_held: bool = False
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Given:
    """An event for one client."""

    token: str
    count: int
    event: bytes


class Window:
    """The oldest events of a group that are not done, who holds them, and until when."""

    def __init__(
        self, positions: Positions, done: Iterable[Place] = (), held: Iterable[Held] = ()
    ) -> None:
        """`positions`: where it begins; `done`, `held`: what is known of the events behind."""
        self._read_to = [list(row) for row in positions]
        self._entries: dict[Place, _Entry] = {}
        """In the order in which they came."""
        self._was_done = set(done)
        self._was_held: dict[Place, Held] = {one.place: one for one in held}
        self._bytes = 0
        self._held = len(self._was_held)

    @property
    def held(self) -> int:
        """Events that somebody has, or had before."""
        return self._held

    @property
    def oldest(self) -> tuple[str, int] | None:
        """Token and count of the oldest event that is not done; None: there is none."""
        found = next((entry for entry in self._entries.values() if not entry.is_done), None)
        return None if found is None else (_token(found), found.count)

    @property
    def is_complete(self) -> bool:
        """Was all read again that was held or done before?"""
        return not self._was_held and not self._was_done

    @property
    def has_room(self) -> bool:
        """Are more events to be read? What was held or done before is read again in any case."""
        if not self.is_complete:
            return True
        return len(self._entries) < EVENTS_MAX and self._bytes < BYTES_MAX

    def add(self, stream: int, partition: int, position: Position, event: bytes) -> None:
        """The next event of a partition, which ends at `position`."""
        place = (stream, partition, *position)
        entry = _Entry(place, self._read_to[stream][partition], event)
        self._read_to[stream][partition] = position
        known = self._was_held.get(place)
        if known is not None:
            entry.count, entry.until, entry.is_held = known.count, known.until, True
        if place in self._was_done:
            entry.is_done, entry.event = True, b""
            self._was_done.discard(place)
        self._entries[place] = entry
        self._bytes += len(entry.event)
        if entry.is_done:
            self._trim()

    def passed(self, positions: Positions) -> None:
        """There is nothing else to show before these positions."""
        self._read_to = [list(row) for row in positions]
        for place in [place for place in self._was_held if self._is_read(place)]:
            del self._was_held[place]
            self._held -= place not in self._entries
        self._was_done = {place for place in self._was_done if not self._is_read(place)}

    def take(self, most: int, hold_ms: int, *, now: int) -> list[Given]:
        """Events for one client: those whose time is over first, the oldest of them first."""
        room = min(most, HELD_MAX - self._held)
        found: list[_Entry] = []
        for entry in self._entries.values():
            if len(found) >= most:
                break
            if entry.is_done or entry.until > now:
                continue
            if not entry.is_held:
                if room <= 0:
                    continue
                room -= 1
                self._held += 1
            entry.is_held = True
            entry.count += 1
            entry.until = now + hold_ms
            found.append(entry)
        return [Given(_token(entry), entry.count, entry.event) for entry in found]

    def next_at(self) -> int | None:
        """When the first of those that are held may be given again; None: none is held."""
        return min((entry.until for entry in self._entries.values() if entry.is_held), default=None)

    def finish(self, tokens: Iterable[str]) -> int:
        """Mark these as done; return how many were not before.

        A token of an earlier turn counts, too: the work was done.
        """
        count = 0
        for token in tokens:
            entry = self._found(token)
            if entry is None or not entry.count:
                continue
            count += 1
            self._held -= entry.is_held
            self._bytes -= len(entry.event)
            entry.is_done, entry.is_held, entry.event = True, False, b""
        if count:
            self._trim()
        return count

    def release(self, tokens: Iterable[str], *, at: int) -> int:
        """These may be given to others from `at` on; only who holds one may say so."""
        count = 0
        for token in tokens:
            entry = self._found(token)
            if entry is not None and entry.is_held and _token(entry) == token:
                entry.until = at
                count += 1
        return count

    @property
    def floor(self) -> Positions:
        """Everything before it is done."""
        rows = [list(row) for row in self._read_to]
        for entry in reversed(self._entries.values()):
            rows[entry.place[0]][entry.place[1]] = entry.before
        return tuple(map(tuple, rows))

    @property
    def done(self) -> tuple[Place, ...]:
        """What is done behind the floor, also of what was not read again yet."""
        found = [entry.place for entry in self._entries.values() if entry.is_done]
        return (*found, *self._was_done)

    @property
    def all_held(self) -> Sequence[Held]:
        """What is held, also of what was not read again yet."""
        found = [
            Held(entry.place, entry.count, entry.until)
            for entry in self._entries.values()
            if entry.is_held
        ]
        unread = [one for place, one in self._was_held.items() if place not in self._entries]
        return (*found, *unread)

    def _is_read(self, place: Place) -> bool:
        return place[2:] <= self._read_to[place[0]][place[1]]

    def _found(self, token: str) -> _Entry | None:
        try:
            stream, partition, offset, index, _ = map(int, token.split("."))
        except ValueError:
            return None
        entry = self._entries.get((stream, partition, offset, index))
        return None if entry is None or entry.is_done else entry

    def _trim(self) -> None:
        """Forget what is done up to the first of its partition that is not."""
        blocked: set[tuple[int, int]] = set()
        for place, entry in list(self._entries.items()):
            if place[:2] in blocked:
                continue
            if entry.is_done:
                del self._entries[place]
            else:
                blocked.add(place[:2])


def _token(entry: _Entry) -> str:
    return ".".join(map(str, (*entry.place, entry.count)))
