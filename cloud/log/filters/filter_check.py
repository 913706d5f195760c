"""Warns of mistakes in a filter, by what the catalogue knows. Pure.

Such are a field that no stream has, and a comparison that is never true. These are warnings and not
refusals: a stream's fields are learnt, and one that is unknown today may come tomorrow.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edgewake.cloud.log.filters.filter_syntax import Call, Field, Node, SetOf, Value
from edgewake.protocol.names import RESERVED_FIELDS

Kinds = Mapping[str, str]
"""Fields with their kinds: number, string or boolean."""

WARNINGS_MAX: Final = 10
"""Warnings given at once."""
NEAR_MAX: Final = 3
_ENVELOPE: Final[Kinds] = dict.fromkeys(RESERVED_FIELDS, "number") | {
    **dict.fromkeys(("stream", "query", "device", "via", "mode", "clock_flag"), "string"),
    "final": "boolean",
}
_OF_PLACES: Final = frozenset({"distance_m", "in_box", "in_polygon"})
_NUMERIC: Final = frozenset({"+", "-", "*", "/", "%", "neg", "abs", "ceil", "floor", "round"})
_OF_WORDS: Final = frozenset({"has_words", "has_any_word"})
_TEXTUAL: Final = (
    frozenset({"lower", "upper", "length", "starts_with", "like", "ilike", "not_like", "not_ilike"})
    | _OF_WORDS
)
_COMPARING: Final = frozenset({"=", "<>", "<", "<=", ">", ">=", "in", "between"})
_RESULT: Final[Kinds] = (
    dict.fromkeys(_NUMERIC | {"length", "distance_m"}, "number")
    | dict.fromkeys(("lower", "upper"), "string")
    | dict.fromkeys(
        (
            *_COMPARING,
            *_OF_WORDS,
            "in_set",
            "in_box",
            "in_polygon",
            "in_sample",
            "and",
            "or",
            "not",
            "is",
            "starts_with",
            "like",
            "ilike",
            "not_like",
            "not_ilike",
        ),
        "boolean",
    )
)


@dataclass(frozen=True, slots=True)
class FilterWarning:
    """One warning. `code`: unknown_field, impossible_comparison or wrong_type."""

    code: str
    detail: str
    field: str | None = None
    near: tuple[str, ...] = ()


def warnings_of(trees: Sequence[Node], streams: Sequence[Kinds]) -> list[FilterWarning]:
    """The warnings for the trees of a filter over streams whose fields are all known."""
    kinds: dict[str, str | None] = {}
    for fields in streams:
        for name, kind in fields.items():
            # A field that is a number in one stream and a text in another may be compared with
            # either.
            kinds[name] = kind if kinds.get(name, kind) == kind else None
    known = {**kinds, **_ENVELOPE}
    found = (warning for tree in trees for warning in _check(tree, known))
    return list(dict.fromkeys(found))[:WARNINGS_MAX]


def _check(node: Node, known: Mapping[str, str | None]) -> Iterator[FilterWarning]:
    if isinstance(node, Field) and node.name not in known:
        near = tuple(difflib.get_close_matches(node.name, known, n=NEAR_MAX))
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        detail = (
            f"no stream that is asked for has a field {node.name!r}{hint}; text is written in "
            "single quotes"
        )
        yield FilterWarning("unknown_field", detail, node.name, near)
    if isinstance(node, Call):
        yield from _check_call(node, known)
        for arg in node.args:
            yield from _check(arg, known)


def _argument_kind(function: str) -> str | None:
    """The kind of argument that a function takes; None where any will do."""
    if function in _NUMERIC or function in _OF_PLACES:
        return "number"
    return "string" if function in _TEXTUAL else None


def _check_call(call: Call, known: Mapping[str, str | None]) -> Iterator[FilterWarning]:
    first, *others = call.args
    if call.name in _COMPARING:
        kind = _kind(first, known)
        for other in others:
            found = _kind(other, known)
            if None not in (kind, found) and kind != found:
                yield FilterWarning(
                    "impossible_comparison",
                    f"{_shown(first)} is a {kind} and {_shown(other)} a {found}: never true",
                )
    wanted = _argument_kind(call.name)
    for arg in _arguments(call, wanted):
        found = _kind(arg, known)
        if wanted is not None and found is not None and found != wanted:
            yield FilterWarning(
                "wrong_type",
                f"{_shown(arg)} is a {found}, and {call.name.replace('_', ' ').upper()} of it is "
                "always NULL",
            )


def _arguments(call: Call, wanted: str | None) -> Sequence[Node]:
    """Those that must be of the kind that its function takes."""
    if call.name in _OF_PLACES:
        return call.args[:2]
    return call.args if wanted == "number" else call.args[:1]


def _kind(node: Node, known: Mapping[str, str | None]) -> str | None:
    """The kind of a node's value; None where it is not known, or NULL."""
    match node:
        case Field(name):
            return known.get(name)
        case Value(bool()):
            return "boolean"
        case Value(int() | float()):
            return "number"
        case Value(str()):
            return "string"
        case Call(name):
            return _RESULT.get(name)
    return None


def _shown(node: Node) -> str:
    match node:
        case Field(name):
            return name
        case Value(value):
            return repr(value)
        case SetOf(name):
            return f"SET({name!r})"
        case Call(name, args):
            return f"{name}({', '.join(map(_shown, args))})"
    raise AssertionError(node)
