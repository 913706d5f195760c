"""Finds the filters that an event passes, without trying every filter.

It is asked once per event for all leases of a stream.

Most leases name a device or value of their own (`device = 'car-7' AND speed > 50`). Such a filter
can only be TRUE for events whose field has that very value, so it is found through an index on
(field, value) and only then evaluated. A filter without such a condition is evaluated for every
event; `Matcher.scanned` counts these, and the proxy bounds them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar

from edgewake.cloud.log.decode import DATA, Event
from edgewake.cloud.log.filters.filter import Predicate, compile_where
from edgewake.cloud.log.filters.filter_syntax import Call, Field, Node, Value, parse_where
from edgewake.protocol.errors import FilterError

T = TypeVar("T")
Key: TypeAlias = tuple[str, object]
"""(kind, value): numbers equal numbers of another type, but no boolean equals a number, as in the
filters themselves."""
_PLAIN: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*) = '([^'\\\x00-\x1f]*)'")
"""The form of most leases' filters. The parser takes 130 µs for it, and a proxy that takes over has
a hundred thousand of them."""
_KINDS: Final[Mapping[type, str]] = {bool: "boolean", int: "number", float: "number", str: "text"}


@dataclass(slots=True)
class _Entry(Generic[T]):
    predicate: Predicate | None
    """None: the index alone decides, or everything passes."""
    target: T
    field: str | None
    keys: tuple[Key, ...]


class Matcher(Generic[T]):
    """Filters and what each stands for."""

    def __init__(self) -> None:
        self._entries: dict[str | None, _Entry[T]] = {}
        self._index: dict[str, dict[Key, list[_Entry[T]]]] = {}
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
        entry = _entry(where, target)
        self._entries[where] = entry
        if entry.field is None:
            self._scanned[where] = entry
        else:
            values = self._index.setdefault(entry.field, {})
            for key in entry.keys:
                values.setdefault(key, []).append(entry)

    def remove(self, where: str | None) -> None:
        """Forget a filter."""
        entry = self._entries.pop(where)
        if entry.field is None:
            del self._scanned[where]
            return
        values = self._index[entry.field]
        for key in entry.keys:
            values[key].remove(entry)
            if not values[key]:
                del values[key]
        if not values:
            del self._index[entry.field]

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

    @staticmethod
    def _that_may_want(
        values: Mapping[Key, list[_Entry[T]]], name: str, lost: Mapping[str, Any]
    ) -> Iterable[_Entry[T]]:
        """The filters that demand certain values of a field and may want what is lost.

        All of them, unless `lost` names the field's value.
        """
        if name in lost:
            key = key_of(lost[name])
            return () if key is None else values.get(key, ())
        return {
            id(entry): entry for entries in values.values() for entry in entries
        }.values()  # one with IN stands at each of its values

    def _candidates(self, fields: Mapping[str, Any]) -> Iterator[_Entry[T]]:
        yield from list(self._scanned.values())
        for name, values in self._index.items():
            key = key_of(fields.get(name))
            if key is not None and key in values:
                yield from list(values[key])


def _is_true(predicate: Predicate, fields: Mapping[str, Any]) -> bool:
    try:
        return predicate(fields)
    except (TypeError, ValueError, ArithmeticError):
        # One odd event must not stop all leases; it passes no filter that it breaks.
        return False


def _entry(where: str | None, target: T) -> _Entry[T]:
    if where is None:
        return _Entry(None, target, None, ())
    plain = _PLAIN.fullmatch(where)
    if plain is not None and _is_field(plain[1]):
        return _Entry(None, target, plain[1], (("text", plain[2]),))
    node = parse_where(where, has_lists=False)
    found = required_values(node)
    if found is None:
        return _Entry(compile_where(where).passes, target, None, ())
    field, keys, is_whole = found
    return _Entry(None if is_whole else compile_where(where).passes, target, field, keys)


@lru_cache(1024)
def _is_field(name: str) -> bool:
    """Does the parser take this name for a field where it stands before `=`?

    Then a filter of that form needs no parser.
    """
    try:
        return parse_where(f"{name} = 'x'") == Call("=", (Field(name), Value("x")))
    except FilterError:
        return False


def required_values(node: Node) -> tuple[str, tuple[Key, ...], bool] | None:
    """The values of a field of which an event must have one for the filter to be TRUE.

    The result is the field, the values, and whether the filter demands nothing else; None for a
    filter without such a field.
    """
    match node:
        case Call("=", (Field(name), Value(value)) | (Value(value), Field(name))):
            keys = _keys((value,))
            return None if keys is None else (name, keys, True)
        case Call("in", (Field(name), *items)):
            values = [item.value for item in items if isinstance(item, Value)]
            keys = _keys(tuple(values)) if len(values) == len(items) else None
            return None if keys is None else (name, keys, True)
        case Call("and", parts):
            found = [part for part in map(required_values, parts) if part is not None]
            if not found:
                return None
            name, keys, _ = min(found, key=lambda part: len(part[1]))
            return name, keys, False
    return None


def _keys(values: tuple[object, ...]) -> tuple[Key, ...] | None:
    keys = [key_of(value) for value in values]
    known = tuple(dict.fromkeys(key for key in keys if key is not None))
    return known if len(keys) and None not in keys else None


def key_of(value: object) -> Key | None:
    """The index key of a value; None for NULL and for what no literal can equal."""
    kind = _KINDS.get(type(value))
    return None if kind is None else (kind, value)
