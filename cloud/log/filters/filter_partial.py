"""Evaluates a condition when only some fields are known, to hide what it can never let pass.

A gap names the device that lost readings and nothing of what was in them. `device = 'car-7'` rules
a gap of car-8 out; `speed_kmh > 50` rules none out, because nobody knows how fast the lost ones
were.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from edgewake.cloud.log.filters.filter import compile_node
from edgewake.cloud.log.filters.filter_functions import FUNCTIONS
from edgewake.cloud.log.filters.filter_syntax import Call, Field, Node, SetOf, Value


class _Unknown(Enum):
    UNKNOWN = 0


_UNKNOWN: Final = _Unknown.UNKNOWN


def rules_out(condition: Node, known: Mapping[str, Any]) -> bool:
    """Is the condition FALSE whatever the other fields are? NULL does not rule out."""
    return _value(condition, known) is False


def _value(node: Node, known: Mapping[str, Any]) -> Any:
    match node:
        case Field(name):
            return known.get(name, _UNKNOWN)
        case Value(value):
            return value
        case Call("in_set", (left, SetOf(name, sets))):
            found = _value(left, known)
            members = sets.members(name)
            if not isinstance(found, str) or members is None:
                return _UNKNOWN
            return found in members
        case Call(name, args):
            return _call(name, [_value(arg, known) for arg in args])
    raise AssertionError(node)


def _call(name: str, values: list[Any]) -> Any:
    decides = {"and": False, "or": True}.get(name)
    if decides is not None and any(value is decides for value in values):
        return decides
    if name == "in" and values[0] is not _UNKNOWN:
        found = [_apply("=", [values[0], item]) for item in values[1:] if item is not _UNKNOWN]
        if True in found:
            return True
        return _UNKNOWN if _UNKNOWN in values else _apply("in", values)
    if _UNKNOWN in values or name in FUNCTIONS:
        return _UNKNOWN
    return (
        _apply(name, values)
        if all(isinstance(value, str | int | float | None) for value in values)
        else _UNKNOWN
    )


def _apply(name: str, values: list[Any]) -> Any:
    return compile_node(Call(name, tuple(map(Value, values))))({})
