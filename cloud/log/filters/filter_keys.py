"""Finds what an event must hold to pass a condition: values, beginnings, or boxes for its place.

A condition such as `device = 'car-7' AND speed_kmh > 50` can pass for no event whose device is
another one, so readers with such conditions are found by an event's values
(`edgewake.cloud.log.following.event_index`) in place of being tried one after the other. What is
left of a condition is evaluated on what was found. Keys are read from `=`, IN with literals, IN
SET, LIKE and `starts_with` with a text that something must begin with, IS TRUE, IS FALSE and a bare
boolean field, from `in_box`, `in_polygon` and `distance_m(…) < metres`, through AND and OR, and
from the devices that a reader may see or asks for. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from edgewake.cloud.log.filters.filter_functions import places_within
from edgewake.cloud.log.filters.filter_geo import Box, around
from edgewake.cloud.log.filters.filter_like import literal_prefix
from edgewake.cloud.log.filters.filter_syntax import Call, Field, Node, SetOf, Value
from edgewake.cloud.rights.scope import Scope
from edgewake.protocol.frames.frame import Scalar

DEVICE: Final = "device"
KNOWN_OF_A_GAP: Final = ("stream", "query", DEVICE)
"""What a gap's own fields say of the events that were lost; its numbers and times are the gap's."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Only events pass whose `field` is one of `values` or begins with one of `prefixes`.

    Without either no event can.
    """

    field: str
    values: frozenset[Scalar]
    prefixes: frozenset[str] = frozenset()
    """None is empty."""


@dataclass(frozen=True, slots=True)
class Places:
    """Only events whose `lat` and `lon` lie in one of `boxes` can pass; without boxes none can."""

    lat: str
    lon: str
    boxes: frozenset[Box]


Key: TypeAlias = Keys | Places

_PLACES_LIKE: Final = 8
"""Values of a field that rule out as much as a place does, roughly."""
_PREFIX_LIKE: Final = 1000
"""Values of a field that rule out as much as a prefix does, roughly."""


def keys_of(
    where: Node | None,
    scope: Scope | None,
    devices: frozenset[str] | None = None,
    also: Node | None = None,
) -> Key | None:
    """The keys of a condition; None where an event's values cannot rule it out.

    They hold for what is visible in `scope` (None: everything), of `devices` alone (None: all),
    and for what passes `also`. `where` is None where there is no condition.
    """
    named = None if devices is None else Keys(DEVICE, frozenset[Scalar](devices))
    found = (_of_scope(scope), named, _of_condition(where), _of_condition(also))
    return _fewest([keys for keys in found if keys is not None])


def _of_scope(scope: Scope | None) -> Keys | None:
    if scope is None:
        return None
    devices: set[Scalar] = set()
    prefixes: set[str] = set()
    for part in scope.parts:
        if part.devices is None:
            return None
        devices |= part.devices.exact
        prefixes |= {pattern.partition("*")[0] for pattern in part.devices.patterns}
    return None if "" in prefixes else Keys(DEVICE, frozenset(devices), frozenset(prefixes))


def _of_condition(node: Node | None) -> Key | None:
    match node:
        case Field(name):
            return _keys(name, [True])
        case Call("=", (Field(name), Value(value)) | (Value(value), Field(name))):
            return _keys(name, [value])
        case Call("is", (Field(name), Value(bool(value)))):
            return _keys(name, [value])
        case Call("in", (Field(name), *items)):
            return _of_list(name, items)
        case Call("in_set", (Field(name), SetOf(named, sets))):
            members = sets.members(named)
            return None if members is None else Keys(name, frozenset[Scalar](members))
        case Call("like", (Field(name), Value(str(pattern)), *escape)):
            return _like(name, pattern, escape)
        case Call("starts_with", (Field(name), Value(str(prefix)))) if prefix:
            return Keys(name, frozenset(), frozenset([prefix]))
        case Call("in_box" | "in_polygon" as name, (Field(lat), Field(lon), *literals)):
            boxes = places_within(name, [one.value for one in literals if isinstance(one, Value)])
            return None if boxes is None else Places(lat, lon, frozenset(boxes))
        case Call("<" | "<=", (Call("distance_m", to), Value(metres))) | Call(
            ">" | ">=", (Value(metres), Call("distance_m", to))
        ):
            return _near(to, metres)
        case Call("and", parts):
            return _fewest([keys for keys in map(_of_condition, parts) if keys is not None])
        case Call("or", parts):
            return _together([_of_condition(part) for part in parts])
    return None


def _like(name: str, pattern: str, escape: Sequence[Node]) -> Keys | None:
    """The one value of a pattern without wildcards, or how all that it matches begins."""
    marks = [mark.value for mark in escape if isinstance(mark, Value)]
    prefix, is_whole = literal_prefix(pattern, escape=str(marks[0]) if marks else None)
    if is_whole:
        return Keys(name, frozenset([prefix]))
    return Keys(name, frozenset(), frozenset([prefix])) if prefix else None


def _of_list(name: str, items: Sequence[Node]) -> Keys | None:
    values = [item.value for item in items if isinstance(item, Value)]
    return _keys(name, values) if len(values) == len(items) else None


def _keys(name: str, values: Sequence[Scalar]) -> Keys | None:
    """The keys of some values; None where a gap may match in spite of them.

    For fields that a gap has, a text compared with no text is NULL, which rules no gap out.
    """
    if name in KNOWN_OF_A_GAP and not all(isinstance(value, str) for value in values):
        return None
    return Keys(name, frozenset(value for value in values if value is not None))


def _near(to: Sequence[Node], metres: Scalar) -> Places | None:
    match to:
        case (
            Field(lat),
            Field(lon),
            Value(int() | float() as north),
            Value(int() | float() as east),
        ):
            if isinstance(metres, bool) or not isinstance(metres, int | float):
                return None
            return Places(lat, lon, frozenset(around(north, east, metres)))
    return None


def _fewest(found: Sequence[Key]) -> Key | None:
    """The key that rules out most, among several that all hold; those of one field intersect."""
    by_field: dict[str, Keys] = {}
    places: list[Key] = []
    for one in found:
        if isinstance(one, Places):
            places.append(one)
            continue
        before = by_field.get(one.field)
        by_field[one.field] = one if before is None else _both(one, before)
    return min([*by_field.values(), *places], key=_weight, default=None)


def _both(one: Keys, other: Keys) -> Keys:
    """What holds of both; where prefixes are among them, the one that rules out more."""
    if one.prefixes or other.prefixes:
        return min(one, other, key=_weight)
    return Keys(one.field, one.values & other.values)


def _weight(keys: Key) -> int:
    if isinstance(keys, Keys):
        return len(keys.values) + _PREFIX_LIKE * len(keys.prefixes)
    return _PLACES_LIKE * len(keys.boxes)


def _together(found: Sequence[Key | None]) -> Key | None:
    """One of the conditions is enough: all must be of one field, or of one place."""
    values = [one for one in found if isinstance(one, Keys)]
    places = [one for one in found if isinstance(one, Places)]
    if len(values) == len(found) and len({one.field for one in values}) == 1:
        return Keys(
            values[0].field,
            frozenset[Scalar]().union(*(one.values for one in values)),
            frozenset[str]().union(*(one.prefixes for one in values)),
        )
    if len(places) == len(found) and len({(one.lat, one.lon) for one in places}) == 1:
        boxes = frozenset[Box]().union(*(one.boxes for one in places))
        return Places(places[0].lat, places[0].lon, boxes)
    return None
