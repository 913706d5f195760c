"""Pairs readings of two streams whose keys are equal and whose times are as close as a JOIN allows.

Pure: no Kafka, no Spark, no clock. `left` is the reading of FROM, `right` its partner of the joined
stream: right.t - left.t is in [earliest, latest].

Whichever of two comes second finds the first, so each pair is found once, in whatever order they
come. A reading is kept until event time has passed the last moment at which a partner may be: those
that come later are late. Then it is known whether a left one has any.

What is kept is on `ew.windows` as one record for each batch, removed when the last of its readings
is no longer needed: nothing is written twice, however many readings a key has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

import orjson

from edgewake.cloud.queries.query import Within

KEY_READINGS_MAX: Final = 1_000
"""Readings of a key and side that are kept, and so the rows that one reading may become. Beyond it
the earliest is let go."""
READINGS_MAX: Final = 200_000
"""Readings of a query that are kept, some 500 bytes each. Beyond it the one is let go that would be
kept the shortest."""
CHARS_MAX: Final = 64 << 20
"""Characters of the texts in them, in place of these 500 bytes: one reading may have a million.
Beyond it as with READINGS_MAX."""
RECORD_BYTES_MAX: Final = 1 << 18
"""Bytes of a record of kept readings, a quarter of what a record may have. A larger batch makes
several."""

Side: TypeAlias = Literal[0, 1]
LEFT: Final[Side] = 0
RIGHT: Final[Side] = 1
Place: TypeAlias = tuple[int, int, int]
"""The place of a reading in its stream: partition, offset, number in the frame."""
_time = attrgetter("t")


@dataclass(slots=True, eq=False)
class Kept:
    """A reading that may still find a partner."""

    t: int
    place: Place
    values: list[Any]
    is_paired: bool = False
    """Has it a partner? Of left ones."""
    is_gone: bool = False
    is_written: bool = False
    """Does a record have it?"""

    @property
    def chars(self) -> int:
        """Characters of its texts."""
        return sum(len(value) for value in self.values if type(value) is str)


@dataclass
class Partners:
    """The readings of both streams that one query keeps."""

    within: Within
    of: tuple[dict[str, list[Kept]], dict[str, list[Kept]]] = field(
        default_factory=lambda: ({}, {})
    )
    """Left and right: key → its readings by time."""
    count: int = 0
    chars: int = 0
    """Bytes of the texts in them."""
    _until: list[tuple[int, Side, str]] = field(default_factory=list)
    """A heap: up to which event time a reading of a key is kept."""
    _new: list[tuple[Side, str, Kept]] = field(default_factory=list)
    _changed: list[tuple[str, Side, Kept]] = field(default_factory=list)
    _records: dict[str, int] = field(default_factory=dict)
    """Records of what is kept → up to which event time they are needed."""

    def until(self, side: Side, t: int) -> int:
        """The latest time that a partner may have."""
        return t + self.within.latest_ms if side == LEFT else t - self.within.earliest_ms

    def put(self, side: Side, key: str, one: Kept) -> tuple[list[Kept], list[tuple[Side, Kept]]]:
        """Add a reading and find its partners.

        Returns its partners by time, and what was let go because too many are kept.
        """
        first, last = (
            (self.within.earliest_ms, self.within.latest_ms)
            if side == LEFT
            else (-self.within.latest_ms, -self.within.earliest_ms)
        )
        others = self.of[1 - side].get(key, [])
        found = others[
            bisect_left(others, one.t + first, key=_time) : bisect_right(
                others, one.t + last, key=_time
            )
        ]
        if found:
            for left in found if side == RIGHT else [one]:
                self._pair(left)
        self._keep(side, key, one)
        self._new.append((side, key, one))
        # A large batch: most of it is gone again, and will not be written.
        if len(self._new) > 2 * self.count + KEY_READINGS_MAX:
            self._new = [new for new in self._new if not new[2].is_gone]
        return found, list(self._too_many(side, key))

    def over(self, closed: int | None) -> list[Kept]:
        """Forget those that find no partner any more, since all up to `closed` are late now.

        Returns the left ones that found none.
        """
        alone: list[Kept] = []
        while closed is not None and self._until and self._until[0][0] <= closed:
            _, side, key = heappop(self._until)
            kept = self.of[side].get(key, [])
            while kept and self.until(side, kept[0].t) <= closed:
                one = self._remove(side, key, 0)
                if side == LEFT and not one.is_paired:
                    alone.append(one)
        return alone

    def is_due(self, closed: int | None) -> bool:
        """Would anything be forgotten?"""
        return closed is not None and bool(self._until) and self._until[0][0] <= closed

    def dump(self, revision: int, closed: int | None) -> dict[str, bytes | None]:
        """Return what must be written since the last call.

        It is name → record; None removes the record.
        """
        found: dict[str, bytes | None] = {}
        for name in [
            name for name, until in self._records.items() if closed is not None and until <= closed
        ]:
            del self._records[name]
            found[name] = None
        for i, (until, texts) in enumerate(_cut(self._entries())):
            name = f"{revision}.{i}"
            self._records[name] = until
            found[name] = b"[%d,[%s]]" % (until, b",".join(texts))
        self._new.clear()
        self._changed.clear()
        return found

    def whole(self, revision: int) -> dict[str, bytes]:
        """All that is kept, as if none of it was written down: name → record."""
        self._records.clear()
        self._changed.clear()
        self._new = [
            (side, key, one)
            for side in (LEFT, RIGHT)
            for key, all_of in self.of[side].items()
            for one in all_of
        ]
        return {
            name: value for name, value in self.dump(revision, None).items() if value is not None
        }

    def load(self, records: Mapping[str, bytes], closed: int | None) -> None:
        """The reverse of `dump`, of all records that stand; `closed` as it was then."""
        lefts: dict[Place, tuple[str, Kept]] = {}
        rights: dict[Place, tuple[str, Kept]] = {}
        for name in sorted(records, key=lambda name: tuple(map(int, name.split(".")))):
            self._records[name], entries = orjson.loads(records[name])
            for what, side, place, *rest in entries:
                known = (lefts, rights)[side]
                if what == "new":
                    key, t, values, is_paired = rest
                    known[tuple(place)] = (
                        key,
                        Kept(t, tuple(place), values, is_paired, is_written=True),
                    )
                elif what == "gone":
                    known.pop(tuple(place), None)
                elif tuple(place) in known:
                    known[tuple(place)][1].is_paired = True
        for side, known in ((LEFT, lefts), (RIGHT, rights)):
            for key, one in known.values():
                if closed is None or self.until(side, one.t) > closed:
                    self._keep(side, key, one)

    def _pair(self, left: Kept) -> None:
        if not left.is_paired and left.is_written:
            self._changed.append(("paired", LEFT, left))
        left.is_paired = True

    def _keep(self, side: Side, key: str, one: Kept) -> None:
        insort(self.of[side].setdefault(key, []), one, key=_time)
        self.count += 1
        self.chars += one.chars
        heappush(self._until, (self.until(side, one.t), side, key))

    def _remove(self, side: Side, key: str, at: int) -> Kept:
        kept = self.of[side][key]
        one = kept.pop(at)
        if not kept:
            del self.of[side][key]
        one.is_gone = True
        self.count -= 1
        self.chars -= one.chars
        return one

    def _too_many(self, side: Side, key: str) -> Iterator[tuple[Side, Kept]]:
        """Let go what is beyond the bounds."""
        if len(self.of[side].get(key, ())) > KEY_READINGS_MAX:
            yield self._let_go(side, key)
        while self.count > READINGS_MAX or self.chars > CHARS_MAX:
            until, of_side, of_key = heappop(self._until)
            kept = self.of[of_side].get(of_key)
            if kept and self.until(of_side, kept[0].t) <= until:
                yield self._let_go(of_side, of_key)
        # Entries of readings that were dropped early stay behind in the heap.
        if len(self._until) > 2 * self.count + KEY_READINGS_MAX:
            self._until = [
                (self.until(s, one.t), s, name)
                for s in (LEFT, RIGHT)
                for name, all_of in self.of[s].items()
                for one in all_of
            ]
            heapify(self._until)

    def _let_go(self, side: Side, key: str) -> tuple[Side, Kept]:
        one = self._remove(side, key, 0)
        if one.is_written:
            self._changed.append(("gone", side, one))
        return side, one

    def _entries(self) -> Iterator[tuple[int, bytes]]:
        """What a record says of each reading, and up to which event time it is needed."""
        for side, key, one in self._new:
            if not one.is_gone:
                one.is_written = True
                yield (
                    self.until(side, one.t),
                    orjson.dumps(["new", side, one.place, key, one.t, one.values, one.is_paired]),
                )
        for what, side, one in self._changed:
            if what == "paired" and one.is_gone:
                continue
            yield self.until(side, one.t), orjson.dumps([what, side, one.place])


def _cut(entries: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """Cut entries into records, each with the latest time up to which it is needed.

    A record has at most RECORD_BYTES_MAX, unless a single entry is larger.
    """
    until, texts, size = 0, list[bytes](), 0
    for to, text in entries:
        if texts and size + len(text) > RECORD_BYTES_MAX:
            yield until, texts
            texts, size = [], 0
        until, size = (max(until, to) if texts else to), size + len(text)
        texts.append(text)
    if texts:
        yield until, texts
