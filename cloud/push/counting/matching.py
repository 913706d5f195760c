"""Finds the filters that an event passes, without trying every filter.

It is asked once per event for all leases of a stream.

Most leases name a device or value of their own (`device = 'car-7' AND speed > 50`). Such a filter
can only be TRUE for events whose field has that very value, so it is found through an index on
(field, value) and only then evaluated; so is one that says how a text begins (LIKE 'bus-%'), which
rights with patterns do, by one look-up for each length. Filters with a named set are found by one
look-up in the set as it is then, whatever it holds. A filter without such a condition is evaluated
for every event; `Matcher.scanned` counts these, and the proxy bounds them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.filters.filter import Predicate, compile_where
from edgewake.cloud.log.filters.filter_like import literal_prefix
from edgewake.cloud.log.filters.filter_syntax import Call, Field, Node, Sets, Value, parse_where
from edgewake.protocol.errors import FilterError

T = TypeVar("T")
Key: TypeAlias = tuple[str, object]
"""(kind, value): numbers equal numbers of another type, but no boolean equals a number, as in the
filters themselves."""
BEGINS: Final = "begins"
BEGINS_LIKE: Final = 1000
"""Values that rule out as much as a beginning does, roughly."""
_PLAIN: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*) = '([^'\\\x00-\x1f]*)'")
"""The form of most leases' filters. The parser takes 130 µs for it, and a proxy that takes over has
a hundred thousand of them."""
_KINDS: Final[Mapping[type, str]] = {bool: "boolean", int: "number", float: "number", str: "text"}


@dataclass(frozen=True, slots=True)
class Demand:
    """What an event must have for a filter to be TRUE.

    Its `field` holds one of `keys`, or a member of the set `named`. A key of the kind BEGINS is how
    a text must begin.
    """

    field: str
    keys: tuple[Key, ...] = ()
    named: str | None = None
    is_whole: bool = True
    """Does the filter demand nothing else?"""


@dataclass(slots=True)
class _Entry(Generic[T]):
    predicate: Predicate | None
    """None: the index alone decides, or everything passes."""
    target: T
    demand: Demand | None


class Matcher(Generic[T]):
    """Filters and what each stands for."""

    def __init__(self, sets: Sets | None = None) -> None:
        """`sets`: where named sets are found; None: no filter may have one."""
        self._sets = sets
        self._entries: dict[str | None, _Entry[T]] = {}
        self._index: dict[str, dict[Key, list[_Entry[T]]]] = {}
        self._lengths: dict[str, dict[int, int]] = {}
        """Each field → length of beginnings → its number of keys."""
        self._in_sets: dict[tuple[str, str], dict[str | None, _Entry[T]]] = {}
        """Filters by their own text, by the field and the set that it must be in."""
        self._scanned: dict[str | None, _Entry[T]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def scanned(self) -> int:
        """Filters that are evaluated for every event."""
        return sum(entry.predicate is not None for entry in self._scanned.values())

    def get(self, where: str | None) -> T | None:
        """What a filter stands for; None where it is not there."""
        entry = self._entries.get(where)
        return None if entry is None else entry.target

    def targets(self) -> Iterator[T]:
        """What all the filters stand for."""
        return (entry.target for entry in self._entries.values())

    def add(self, where: str | None, target: T) -> None:
        """Let `where` stand for `target`. Raises FilterError."""
        entry = _entry(where, target, self._sets)
        self._entries[where] = entry
        demand = entry.demand
        if demand is None:
            self._scanned[where] = entry
        elif demand.named is not None:
            self._in_sets.setdefault((demand.field, demand.named), {})[where] = entry
        else:
            values = self._index.setdefault(demand.field, {})
            for key in demand.keys:
                values.setdefault(key, []).append(entry)
                if key[0] == BEGINS:
                    lengths = self._lengths.setdefault(demand.field, {})
                    length = len(str(key[1]))
                    lengths[length] = lengths.get(length, 0) + 1

    def remove(self, where: str | None) -> None:
        """Forget a filter."""
        entry = self._entries.pop(where)
        demand = entry.demand
        if demand is None:
            del self._scanned[where]
            return
        if demand.named is not None:
            place = (demand.field, demand.named)
            del self._in_sets[place][where]
            if not self._in_sets[place]:
                del self._in_sets[place]
            return
        values = self._index[demand.field]
        for key in demand.keys:
            values[key].remove(entry)
            if not values[key]:
                del values[key]
            if key[0] == BEGINS:
                self._forget_length(demand.field, len(str(key[1])))
        if not values:
            del self._index[demand.field]

    def _forget_length(self, field: str, length: int) -> None:
        lengths = self._lengths[field]
        lengths[length] -= 1
        if not lengths[length]:
            del lengths[length]
        if not lengths:
            del self._lengths[field]

    def matches(self, event: Event) -> Iterator[T]:
        """What the filters that `event` passes stand for.

        A gap passes every filter that may have wanted what is lost.
        """
        if event.kind == DATA:
            for entry in self._candidates(event.fields):
                if entry.predicate is None or _is_true(entry.predicate, event.fields):
                    yield entry.target
        else:
            yield from (entry.target for entry in self._scanned.values())
            for name, values in self._index.items():
                yield from (
                    entry.target for entry in self._that_may_want(values, name, event.fields)
                )
            for (name, named), entries in self._in_sets.items():
                if name not in event.fields or self._is_in(event.fields[name], named):
                    yield from (entry.target for entry in entries.values())

    def _that_may_want(
        self, values: Mapping[Key, list[_Entry[T]]], name: str, lost: Mapping[str, Any]
    ) -> Iterable[_Entry[T]]:
        """The filters that demand certain values of a field and may want what is lost.

        All of them, unless `lost` names the field's value.
        """
        if name in lost:
            return self._with_value(name, lost[name], values)
        return {
            id(entry): entry for entries in values.values() for entry in entries
        }.values()  # one with IN stands at each of its values

    def _candidates(self, fields: Mapping[str, Any]) -> Iterator[_Entry[T]]:
        yield from list(self._scanned.values())
        for name, values in self._index.items():
            yield from self._with_value(name, fields.get(name), values)
        for (name, named), entries in self._in_sets.items():
            if self._is_in(fields.get(name), named):
                yield from list(entries.values())

    def _with_value(
        self, name: str, value: object, values: Mapping[Key, list[_Entry[T]]]
    ) -> Iterable[_Entry[T]]:
        """The filters that demand this value, or that a text begins as it does, each once."""
        key = key_of(value)
        found = [] if key is None else list(values.get(key, ()))
        if not isinstance(value, str) or name not in self._lengths:
            return found
        for length in self._lengths[name]:
            found += values.get((BEGINS, value[:length]), ())
        return {id(entry): entry for entry in found}.values()

    def _is_in(self, value: object, named: str) -> bool:
        """Is it in the set as it is now? Nothing is in one that was removed."""
        members = None if self._sets is None else self._sets.members(named)
        return isinstance(value, str) and members is not None and value in members


def _is_true(predicate: Predicate, fields: Mapping[str, Any]) -> bool:
    try:
        return predicate(fields)
    except (TypeError, ValueError, ArithmeticError):
        # One odd event must not stop all leases; it passes no filter that it breaks.
        return False


def _entry(where: str | None, target: T, sets: Sets | None) -> _Entry[T]:
    if where is None:
        return _Entry(None, target, None)
    plain = _PLAIN.fullmatch(where)
    if plain is not None and _is_field(plain[1]):
        return _Entry(None, target, Demand(plain[1], (("text", plain[2]),)))
    demand = demand_of(parse_where(where))
    if demand is not None and demand.is_whole:
        return _Entry(None, target, demand)
    return _Entry(compile_where(where, sets).passes, target, demand)


@lru_cache(1024)
def _is_field(name: str) -> bool:
    """Does the parser take this name for a field where it stands before `=`?

    Then a filter of that form needs no parser.
    """
    try:
        return parse_where(f"{name} = 'x'") == Call("=", (Field(name), Value("x")))
    except FilterError:
        return False


def demand_of(node: Node) -> Demand | None:
    """What a filter demands of an event; None where it demands no field's value."""
    match node:
        case Call("=", (Field(name), Value(value)) | (Value(value), Field(name))):
            return _demand(name, (value,))
        case Call("in", (Field(name), *items)):
            values = [item.value for item in items if isinstance(item, Value)]
            return _demand(name, tuple(values)) if len(values) == len(items) else None
        case Call("in_set", (Field(name), Value(named))):
            return Demand(name, named=str(named))
        case Call("like", (Field(name), Value(str(pattern)), *escape)):
            return _demand_of_like(name, pattern, escape)
        case Call("or", parts):
            return _any_of([demand_of(part) for part in parts])
        case Call("and", parts):
            found = [part for part in map(demand_of, parts) if part is not None]
            if not found:
                return None
            return replace(min(found, key=_weight), is_whole=False)
    return None


def _demand_of_like(name: str, pattern: str, escape: Sequence[Node]) -> Demand | None:
    marks = [str(mark.value) for mark in escape if isinstance(mark, Value)]
    prefix, is_whole = literal_prefix(pattern, escape=marks[0] if marks else None)
    if is_whole:
        return Demand(name, (("text", prefix),))
    return Demand(name, ((BEGINS, prefix),), is_whole=False) if prefix else None


def _any_of(found: Sequence[Demand | None]) -> Demand | None:
    """One of the conditions is enough: all must be about values of one field."""
    demands = [one for one in found if one is not None and one.named is None]
    fields = {one.field for one in demands}
    if len(demands) < len(found) or len(fields) != 1:
        return None
    keys = tuple(dict.fromkeys(key for one in demands for key in one.keys))
    return Demand(fields.pop(), keys, is_whole=all(one.is_whole for one in demands))


def _weight(demand: Demand) -> tuple[bool, int]:
    """A set, which may have ten thousand members, after any list of values."""
    beginnings = sum(key[0] == BEGINS for key in demand.keys)
    return demand.named is not None, len(demand.keys) + BEGINS_LIKE * beginnings


def _demand(name: str, values: tuple[object, ...]) -> Demand | None:
    keys = _keys(values)
    return None if keys is None else Demand(name, keys)


def _keys(values: tuple[object, ...]) -> tuple[Key, ...] | None:
    keys = [key_of(value) for value in values]
    known = tuple(dict.fromkeys(key for key in keys if key is not None))
    return known if len(keys) and None not in keys else None


def key_of(value: object) -> Key | None:
    """The index key of a value; None for NULL and for what no literal can equal."""
    kind = _KINDS.get(type(value))
    return None if kind is None else (kind, value)
