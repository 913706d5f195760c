"""What an event must hold to be shown at all: one field, and the values of it that can pass.

A condition such as `device = 'car-7' AND speed_kmh > 50` can pass for no event whose device is
another one, so readers with such conditions are found by an event's values
(`edgewake.cloud.log.following.event_index`) in place of being tried one after the other. What is
left of a condition is evaluated on what was found. Keys are read from `=`, IN with literals, IS
TRUE, IS FALSE and a bare boolean field, through AND and OR, and from the devices that a reader may
see. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.log.filters.filter_syntax import Call, Field, Node, Value
from edgewake.cloud.rights.scope import Scope
from edgewake.protocol.frames.frame import Scalar

DEVICE: Final = "device"
KNOWN_OF_A_GAP: Final = ("stream", "query", DEVICE)
"""What a gap's own fields say of the events that were lost; its numbers and times are the gap's."""


@dataclass(frozen=True, slots=True)
class Keys:
    """No event is shown whose `field` is none of `values`; with no values, none at all."""

    field: str
    values: frozenset[Scalar]


def keys_of(where: Node | None, scope: Scope | None) -> Keys | None:
    """The keys of a condition (None: no condition) in the sight of `scope` (None: everything); None
    where an event's values cannot rule it out.
    """
    seen, wanted = _of_scope(scope), _of_condition(where)
    if seen is not None and wanted is not None and seen.field == wanted.field:
        return Keys(seen.field, seen.values & wanted.values)
    return _fewest([keys for keys in (seen, wanted) if keys is not None])


def _of_scope(scope: Scope | None) -> Keys | None:
    if scope is None:
        return None
    devices: set[Scalar] = set()
    for part in scope.parts:
        if part.devices is None or part.devices.patterns:
            return None
        devices |= part.devices.exact
    return Keys(DEVICE, frozenset(devices))


def _of_condition(node: Node | None) -> Keys | None:
    match node:
        case Field(name):
            return _keys(name, [True])
        case Call("=", (Field(name), Value(value)) | (Value(value), Field(name))):
            return _keys(name, [value])
        case Call("is", (Field(name), Value(bool(value)))):
            return _keys(name, [value])
        case Call("in", (Field(name), *items)):
            return _of_list(name, items)
        case Call("and", parts):
            return _fewest([keys for keys in map(_of_condition, parts) if keys is not None])
        case Call("or", parts):
            return _together([_of_condition(part) for part in parts])
    return None


def _of_list(name: str, items: Sequence[Node]) -> Keys | None:
    values = [item.value for item in items if isinstance(item, Value)]
    return _keys(name, values) if len(values) == len(items) else None


def _keys(name: str, values: Sequence[Scalar]) -> Keys | None:
    """Of what a gap tells, a text compared with no text is NULL, which rules no gap out."""
    if name in KNOWN_OF_A_GAP and not all(isinstance(value, str) for value in values):
        return None
    return Keys(name, frozenset(value for value in values if value is not None))


def _fewest(found: Sequence[Keys]) -> Keys | None:
    return min(found, key=lambda keys: len(keys.values), default=None)


def _together(found: Sequence[Keys | None]) -> Keys | None:
    """One of the conditions is enough: all must be of one field."""
    known = [keys for keys in found if keys is not None]
    if len(known) < len(found) or len({keys.field for keys in known}) != 1:
        return None
    return Keys(known[0].field, frozenset().union(*(keys.values for keys in known)))
