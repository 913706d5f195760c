"""What changed in the latest rows since a client's cursor: insert, update, delete. Pure.

The last changes are kept with the row before each, so that a follower learns exactly what became of
the rows that it sees, also through a filter that a row enters or leaves. Older changes are known
from the rows themselves, which know where they changed last: there a row that is filtered out is
sent as deleted, whether the client had it or not.

KEPT_MAX and KEPT_BYTES bound the changes of one stream or query; the oldest go first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from operator import itemgetter
from typing import Final, TypeAlias

import orjson

from edgewake.protocol.cursor import Position

KEPT_MAX: Final = 10_000
KEPT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the rows before and after."""

Row: TypeAlias = Sequence[Position]
"""A position for each partition."""
At: TypeAlias = tuple[int, Position]
"""A partition, and the position behind an event of it."""
Shown: TypeAlias = Callable[[bytes], bytes | None]
"""A row as its reader sees it; None: not at all."""


@dataclass(frozen=True, slots=True)
class Change:
    """`before`, `after`: JSON; None where there was, or is, no row."""

    at: At
    key: str
    before: bytes | None
    after: bytes | None

    @property
    def size(self) -> int:
        """The bytes that the change takes, roughly."""
        return len(self.key) + len(self.before or b"") + len(self.after or b"")


class Changes:
    """The last changes, from `since` on; None: nothing is kept yet."""

    def __init__(self) -> None:
        self.since: list[Position] | None = None
        self._kept: deque[Change] = deque()
        """At most KEPT_MAX, and KEPT_BYTES of rows."""
        self._of: list[deque[tuple[int, Change]]] = []
        """What each partition has of them, with their numbers: who asks for what came since a
        place looks at nothing that lies before it."""
        self._numbers = count()
        self._bytes = 0

    def begin(self, at: Row) -> None:
        """Changes are kept from here on, and none of before."""
        self.since = list(at)
        self._kept.clear()
        self._of = [deque() for _ in at]
        self._bytes = 0

    def add(self, change: Change) -> None:
        """The next one."""
        if self.since is None:
            return
        self._kept.append(change)
        self._of[change.at[0]].append((next(self._numbers), change))
        self._bytes += change.size
        while len(self._kept) > KEPT_MAX or self._bytes > KEPT_BYTES:
            oldest = self._kept.popleft()
            self._bytes -= oldest.size
            partition, position = oldest.at
            self._of[partition].popleft()
            self.since[partition] = max(self.since[partition], position)

    def after(self, place: Row) -> list[Change] | None:
        """The changes after `place`, one for each key: the row there and the row now.

        None where they are not all kept.
        """
        if self.since is None or any(
            at < since for at, since in zip(place, self.since, strict=True)
        ):
            return None
        found: list[tuple[int, Change]] = []
        for kept in self._of:
            found.extend(takewhile(lambda one: is_behind(one[1].at, place), reversed(kept)))
        found.sort(key=itemgetter(0))
        return folded(change for _, change in found)


def is_behind(at: At, place: Row) -> bool:
    """Does it lie behind a place?"""
    return at[1] > place[at[0]]


def folded(changes: Iterable[Change]) -> list[Change]:
    """Fold changes into one for each key: the row before the first and after the last."""
    found: dict[str, Change] = {}
    for change in changes:
        first = found.get(change.key)
        before = change.before if first is None else first.before
        found[change.key] = Change(change.at, change.key, before, change.after)
    return list(found.values())


def told(change: Change, shown: Shown) -> bytes | None:
    """A change as a reader gets it; None where it sees none."""
    before = None if change.before is None else shown(change.before)
    after = None if change.after is None else shown(change.after)
    if before == after:
        return None
    key = orjson.dumps(change.key)
    if after is None:
        return b'{"op":"delete","key":%b}' % key
    op = b"insert" if before is None else b"update"
    return b'{"op":"%b","key":%b,"row":%b}' % (op, key, after)


def told_of_row(key: str, data: bytes | None, shown: Shown, *, is_new: bool) -> bytes:
    """The change of a row whose earlier value is unknown; `data` None: it no longer exists."""
    after = None if data is None else shown(data)
    if after is None:
        return b'{"op":"delete","key":%b}' % orjson.dumps(key)
    op = b"insert" if is_new else b"update"
    return b'{"op":"%b","key":%b,"row":%b}' % (op, orjson.dumps(key), after)
