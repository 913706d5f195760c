"""Finds the members that an event of one stream may have to be shown to, by its values. Pure.

It takes one look-up for each field that members are indexed by, however many members there are, one
more for each length of the beginnings that are asked for, and for places one for each size of box.

Members with equal keys share one entry a value, so a set of 10,000 devices that a thousand clients
use is kept once. A box is kept in the cells of a grid whose cells are as large as it, four at most.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from typing import Any, Final, Generic, TypeAlias, TypeVar

from edgewake.cloud.log.decode import DATA, GAP, Event
from edgewake.cloud.log.filters.filter_geo import Box, is_place
from edgewake.cloud.log.filters.filter_keys import KNOWN_OF_A_GAP, Key, Keys

ENTRIES_MAX: Final = 250_000
"""Values of all keys of one stream, some 150 bytes each; whose keys find no room is tried with each
event."""
_SCALARS: Final = (str, int, float, bool)
_CELL_MIN: Final = 2.0**-10
"""Degrees of the smallest cells, some 100 m: of smaller boxes several share one."""

M = TypeVar("M", bound=Hashable)
Entry: TypeAlias = Any
"""A value of a field, the (length, beginning) of one, or a cell: (its size in degrees, its row, its
column)."""


class EventIndex(Generic[M]):
    """An index of members by the values that their filters demand; a member has one key set."""

    def __init__(self) -> None:
        self._groups: dict[Key, dict[M, None]] = {}
        """At most one for each member."""
        self._by_field: dict[Hashable, dict[Entry, tuple[dict[M, None], ...]]] = {}
        """By the name of a field, or the two of a place; at most ENTRIES_MAX values."""
        self._sizes: dict[Hashable, dict[float, int]] = {}
        """Each place → size of cells, each field → length of beginnings → its number of entries."""
        self._groups_of: dict[Hashable, int] = {}
        self._entries = 0

    def add(self, member: M, keys: Key) -> bool:
        """False where there is no room."""
        group = self._groups.get(keys)
        if group is not None:
            group[member] = None
            return True
        entries = _entries_of(keys)
        if self._entries + len(entries) > ENTRIES_MAX:
            return False
        group = self._groups[keys] = {member: None}
        where = _where(keys)
        by_value = self._by_field.setdefault(where, {})
        self._groups_of[where] = self._groups_of.get(where, 0) + 1
        self._entries += len(entries)
        for entry in entries:
            by_value[entry] = (*by_value.get(entry, ()), group)
        for size in _sizes_of(keys, entries):
            sizes = self._sizes.setdefault(where, {})
            sizes[size] = sizes.get(size, 0) + 1
        return True

    def remove(self, member: M, keys: Key) -> None:
        """The last member takes the entries with it."""
        group = self._groups.get(keys)
        if group is None or group.pop(member, self) is self or group:
            return
        del self._groups[keys]
        where, entries = _where(keys), _entries_of(keys)
        by_value = self._by_field[where]
        self._entries -= len(entries)
        for entry in entries:
            left = tuple(other for other in by_value[entry] if other is not group)
            if left:
                by_value[entry] = left
            else:
                del by_value[entry]
        for size in _sizes_of(keys, entries):
            self._forget_size(where, size)
        self._groups_of[where] -= 1
        if not self._groups_of[where]:
            del self._groups_of[where], self._by_field[where]

    def _forget_size(self, where: Hashable, size: float) -> None:
        sizes = self._sizes[where]
        sizes[size] -= 1
        if not sizes[size]:
            del sizes[size]
        if not sizes:
            del self._sizes[where]

    def __bool__(self) -> bool:
        """Is anybody in it? A group that nobody is left in is gone."""
        return bool(self._groups)

    def find(self, event: Event) -> Iterator[M]:
        """The members that an event may have to be shown to, each once; no others see it."""
        for where, by_value in self._by_field.items():
            if isinstance(where, tuple):
                yield from self._find_places(event, where, by_value)
            elif _is_told(event, str(where)):
                value = event.fields.get(str(where))
                if type(value) is str and where in self._sizes:
                    yield from self._find_text(value, self._sizes[where], by_value)
                elif type(value) in _SCALARS:
                    for group in by_value.get(value, ()):
                        yield from group
            else:
                yield from self._all_of(where)

    @staticmethod
    def _find_text(
        text: str, lengths: dict[float, int], by_value: dict[Entry, tuple[dict[M, None], ...]]
    ) -> Iterator[M]:
        """By the whole text and by how it begins; a group may be found by more than one."""
        found = {id(group): group for group in by_value.get(text, ())}
        for length in lengths:
            for group in by_value.get((length, text[: int(length)]), ()):
                found[id(group)] = group
        for group in found.values():
            yield from group

    def _find_places(
        self,
        event: Event,
        where: tuple[str, str],
        by_cell: dict[Entry, tuple[dict[M, None], ...]],
    ) -> Iterator[M]:
        """A group of several boxes may be found by more than one of them."""
        if event.kind != DATA:
            yield from self._all_of(where)
            return
        lat, lon = event.fields.get(where[0]), event.fields.get(where[1])
        if not is_place(lat, lon):
            return
        found: dict[int, dict[M, None]] = {}
        for size in self._sizes.get(where, ()):
            cell = (size, math.floor(lat / size), math.floor(lon / size))  # type: ignore[operator]
            for group in by_cell.get(cell, ()):
                found[id(group)] = group
        for group in found.values():
            yield from group

    def _all_of(self, where: Hashable) -> Iterator[M]:
        for keys, group in self._groups.items():
            if _where(keys) == where:
                yield from group


def _where(keys: Key) -> Hashable:
    return keys.field if isinstance(keys, Keys) else (keys.lat, keys.lon)


def _entries_of(keys: Key) -> frozenset[Entry]:
    if isinstance(keys, Keys):
        return keys.values | {(len(prefix), prefix) for prefix in keys.prefixes}
    return frozenset(cell for box in keys.boxes for cell in _cells(box))


def _sizes_of(keys: Key, entries: frozenset[Entry]) -> list[float]:
    """The size of each entry that is found by one."""
    if isinstance(keys, Keys):
        return [len(prefix) for prefix in keys.prefixes]
    return [size for size, _, _ in entries]


def _cells(box: Box) -> Iterator[Entry]:
    """The cells that a box touches: four at most, as none is smaller than the box is wide."""
    wide = max(box.north - box.south, box.east - box.west, _CELL_MIN)
    size = 2.0 ** math.ceil(math.log2(wide))
    for row in range(math.floor(box.south / size), math.floor(box.north / size) + 1):
        for column in range(math.floor(box.west / size), math.floor(box.east / size) + 1):
            yield size, row, column


def _is_told(event: Event, field: str) -> bool:
    """Does the event's own field decide?

    A watermark is for all; of what was lost, a gap names only the owner.
    """
    if event.kind == DATA:
        return True
    return (
        event.kind == GAP and field in KNOWN_OF_A_GAP and isinstance(event.fields.get(field), str)
    )
