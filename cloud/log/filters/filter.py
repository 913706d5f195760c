"""Evaluates `where=` and `select=`.

A checked tree becomes closures, compiled once per subscription and called once per event.

SQL's three-valued logic: a missing field is NULL, a comparison with NULL is NULL, and only TRUE
lets an event pass. Values keep their JSON types: a number compared with a string, or any operator
on a value of the wrong type, is NULL and never an error, because one odd event must not stop a
stream; lists and objects compare with nothing. `/` divides as 64-bit floats, x / 0 is NULL; strings
compare by code point; LIKE tells case, ILIKE compares in lower case; LIKE, length, lower and upper
of a text over 8192 characters are NULL.

Functions: abs, ceil, coalesce, floor, length, lower, nullif, round, starts_with, upper; of places,
words and objects: `edgewake.cloud.log.filters.filter_functions`. Operators: = <> < <= > >= + - * /
%, AND, OR, NOT, IN (…), IN SET('…'), BETWEEN … AND …, IS [NOT] NULL | TRUE | FALSE, [NOT] LIKE,
[NOT] ILIKE, ESCAPE.

Every part of a tree is evaluated at most once for an event, so that the cost is known beforehand
(`edgewake.cloud.log.filters.filter_cost`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

from edgewake.cloud.log.filters.filter_cost import (
    TEXT_CHARS_MAX,
    check_cost,
    is_list,
    nodes_of,
    own_cost,
)
from edgewake.cloud.log.filters.filter_functions import FUNCTIONS
from edgewake.cloud.log.filters.filter_like import like_matcher
from edgewake.cloud.log.filters.filter_syntax import (
    Call,
    Field,
    Node,
    SetOf,
    Sets,
    Value,
    bound,
    parse_select,
    parse_where,
    sets_in,
)
from edgewake.protocol.errors import FilterError

Event: TypeAlias = Mapping[str, Any]
Evaluate: TypeAlias = Callable[[Event], Any]
Predicate: TypeAlias = Callable[[Event], bool]
Projection: TypeAlias = Callable[[Event], dict[str, Any]]

_INT64: Final = 2**63
_FILTERS_KEPT: Final = 256
"""Compiled filters kept for the next subscription with the same text; the least used goes first."""


@dataclass(frozen=True, slots=True)
class Where:
    """A condition."""

    tree: Node
    cost: int
    """Steps for one event at worst."""
    passes: Predicate
    sets: frozenset[str] = frozenset()
    """The named sets that it uses."""


@dataclass(frozen=True, slots=True)
class Select:
    """Columns."""

    trees: tuple[Node, ...]
    cost: int
    """Steps for one event at worst."""
    project: Projection


@lru_cache(_FILTERS_KEPT)
def compile_where(text: str, sets: Sets | None = None) -> Where:
    """A condition for `where=`; raises FilterError.

    `sets`: where its named sets are found; None: it may have none.
    """
    tree = parse_where(text)
    names = sets_in(tree)
    if names and sets is None:
        raise FilterError(
            f"where: SET({min(names)!r}): there are no named sets here; expected IN with a list"
        )
    steps = check_cost("where", [tree])
    if sets is not None:
        tree = bound(tree, sets)
    evaluate = compile_node(tree)
    return Where(tree, steps, lambda event: evaluate(event) is True, names)


@lru_cache(_FILTERS_KEPT)
def compile_select(text: str) -> Select:
    """A projection for `select=`: the columns in their order, NULL as null; raises FilterError."""
    parsed = parse_select(text)
    steps = check_cost("select", nodes_of(parsed))
    columns = [
        (column.name, None if column.node is None else compile_node(column.node))
        for column in parsed
    ]

    def project(event: Event) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, evaluate in columns:
            if evaluate is None:
                row |= event
            else:
                row[name] = evaluate(event)
        return row

    return Select(
        tuple(column.node for column in parsed if column.node is not None), steps, project
    )


def compile_node(node: Node, count: Callable[[int], None] | None = None) -> Evaluate:
    """A tree as a function of an event.

    `count` is given the own cost of each node whenever it is evaluated.
    """
    evaluate = _compile(node, count)
    if count is None:
        return evaluate
    steps = own_cost(node)

    def counted(event: Event) -> Any:
        count(steps)
        return evaluate(event)

    return counted


def _compile(node: Node, count: Callable[[int], None] | None) -> Evaluate:
    match node:
        case Field(name):
            return lambda event: event.get(name)
        case Value(value):
            return lambda _: value
        case Call("in", (left, *items)) if is_list(node):
            return _in_texts(
                compile_node(left, count),
                frozenset(str(item.value) for item in items if isinstance(item, Value)),
            )
        case Call("in_set", (left, SetOf(name, sets))):
            return _in_set(compile_node(left, count), name, sets)
        case Call(name, args) if name in FUNCTIONS:
            return _compile_function(name, args, count)
        case Call(name, args) if name in _WITH_PATTERN:
            return _compile_like(name, compile_node(args[0], count), args[1:])
        case Call(name, args):
            return _COMPILERS[name](*(compile_node(arg, count) for arg in args))
    raise AssertionError(node)


# Logic: only True, False and None come out.


def _decided_by(decisive: bool, *parts: Evaluate) -> Evaluate:
    """AND is decided by the first False, OR by the first True; else NULL wins."""
    undecided = not decisive

    def run(event: Event) -> bool | None:
        result: bool | None = undecided
        for part in parts:
            value: object = part(event)
            if value is decisive:
                return not undecided
            if value is not undecided:
                result = None
        return result

    return run


def _negated(value: object) -> bool | None:
    return (not value) if value is True or value is False else None


def _is(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda event: left(event) is right(event)


def _in(left: Evaluate, *items: Evaluate) -> Evaluate:
    def run(event: Event) -> bool | None:
        value = left(event)
        result: bool | None = False
        for item in items:
            is_equal = _equal(value, item(event))
            if is_equal:
                return True
            if is_equal is None:
                result = None
        return result

    return run


def _in_texts(left: Evaluate, texts: frozenset[str]) -> Evaluate:
    """Tests with one look-up, however many texts there are; NULL for what is not text."""

    def run(event: Event) -> bool | None:
        value = left(event)
        return value in texts if type(value) is str else None

    return run


def _in_set(left: Evaluate, name: str, sets: Sets) -> Evaluate:
    """Tests against the set as it is when the event is evaluated; NULL for what is not text."""

    def run(event: Event) -> bool | None:
        value = left(event)
        members = sets.members(name)
        return value in members if type(value) is str and members is not None else None

    return run


def _compile_function(
    name: str, args: Sequence[Node], count: Callable[[int], None] | None
) -> Evaluate:
    told = FUNCTIONS[name]
    behind = told.parts_of(len(args))
    literals = [arg.value for arg in args[behind:] if isinstance(arg, Value)]
    calculate = told.calculate(literals)
    parts = [compile_node(arg, count) for arg in args[:behind]]
    if len(parts) == 1:
        (only,) = parts
        return lambda event: calculate(only(event))
    if len(parts) > 2:
        return lambda event: calculate(*(part(event) for part in parts))
    first, second = parts
    return lambda event: calculate(first(event), second(event))


def _between(value: Evaluate, low: Evaluate, high: Evaluate) -> Evaluate:
    def run(event: Event) -> bool | None:
        found = value(event)
        is_above = _at_least(found, low(event))
        if is_above is False:
            return False
        is_below = _at_most(found, high(event))
        return is_below if is_below is False or is_above else None

    return run


# Comparison and arithmetic: NULL unless both are of one kind.

_NUMBERS: Final = (int, float)
_SCALARS: Final = (int, float, str, bool)


def _same_kind(a: Any, b: Any) -> bool:
    kind, other = type(a), type(b)
    return (kind is other and kind in _SCALARS) or (kind in _NUMBERS and other in _NUMBERS)


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    return lambda a, b: compare(a, b) if _same_kind(a, b) else None


_equal: Final = _compared(operator.eq)
_at_least: Final = _compared(operator.ge)
_at_most: Final = _compared(operator.le)


def _binary(apply: Callable[[Any, Any], Any]) -> Callable[[Evaluate, Evaluate], Evaluate]:
    return lambda left, right: lambda event: apply(left(event), right(event))


def _unary(apply: Callable[[Any], Any]) -> Callable[[Evaluate], Evaluate]:
    return lambda part: lambda event: apply(part(event))


def _counted(calculate: Callable[[Any, Any], float]) -> Callable[[Any, Any], float | None]:
    def run(a: Any, b: Any) -> float | None:
        if type(a) not in _NUMBERS or type(b) not in _NUMBERS:
            return None
        return _number(calculate(a, b))

    return run


def _number(value: float) -> float | None:
    """Integers stay exact within 64 bits and become floats beyond; what is not a number is NULL."""
    if type(value) is int and not -_INT64 <= value < _INT64:
        return float(value)
    return None if math.isnan(value) else value


def _divide(a: float, b: float) -> float:
    return math.nan if b == 0 else float(a) / float(b)


def _remainder(a: float, b: float) -> float:
    if b == 0 or math.isinf(a):
        return math.nan
    if isinstance(a, int) and isinstance(b, int):
        return int(math.copysign(abs(a) % abs(b), a))
    return math.fmod(a, b)


# Functions.


def _numeric(calculate: Callable[[Any], float]) -> Callable[[Any], float | None]:
    return lambda a: _number(calculate(a)) if type(a) in _NUMBERS and math.isfinite(a) else None


def _textual(calculate: Callable[[str], Any]) -> Callable[[Any], Any]:
    return lambda a: calculate(a) if type(a) is str and len(a) <= TEXT_CHARS_MAX else None


def _round(value: Evaluate, decimals: Evaluate | None = None) -> Evaluate:
    def run(event: Event) -> float | None:
        number, places = value(event), 0 if decimals is None else decimals(event)
        if type(number) not in _NUMBERS or type(places) is not int or not math.isfinite(number):
            return None
        return _rounded(number, max(-15, min(15, places)))

    return run


def _rounded(number: float, places: int) -> float:
    """Half away from zero, as SQL; Python's own rounds half to even."""
    try:
        rounded = Decimal(repr(number)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    except InvalidOperation:  # more digits than a decimal keeps: nothing behind the point to round
        return number
    return int(rounded) if isinstance(number, int) else float(rounded)


def _coalesce(*parts: Evaluate) -> Evaluate:
    def run(event: Event) -> Any:
        values = (part(event) for part in parts)
        return next((value for value in values if value is not None), None)

    return run


def _starts_with(text: Any, prefix: Any) -> bool | None:
    return text.startswith(prefix) if type(text) is str and type(prefix) is str else None


def _compile_like(name: str, value: Evaluate, literals: Sequence[Node]) -> Evaluate:
    pattern, escape = [*(arg.value for arg in literals if isinstance(arg, Value)), None][:2]
    matches = like_matcher(
        str(pattern),
        escape=None if escape is None else str(escape),
        ignore_case=name.endswith("ilike"),
    )
    like = _textual(matches)
    if name.startswith("not_"):
        return lambda event: _negated(like(value(event)))
    return lambda event: like(value(event))


_WITH_PATTERN: Final = frozenset({"like", "ilike", "not_like", "not_ilike"})

_COMPILERS: Final[Mapping[str, Callable[..., Evaluate]]] = {
    "and": partial(_decided_by, False),
    "or": partial(_decided_by, True),
    "not": _unary(_negated),
    "is": _is,
    "in": _in,
    "between": _between,
    "=": _binary(_equal),
    "<>": _binary(_compared(operator.ne)),
    "<": _binary(_compared(operator.lt)),
    "<=": _binary(_compared(operator.le)),
    ">": _binary(_compared(operator.gt)),
    ">=": _binary(_compared(operator.ge)),
    "+": _binary(_counted(operator.add)),
    "-": _binary(_counted(operator.sub)),
    "*": _binary(_counted(operator.mul)),
    "/": _binary(_counted(_divide)),
    "%": _binary(_counted(_remainder)),
    "neg": _unary(_numeric(operator.neg)),
    "abs": _unary(_numeric(abs)),
    "ceil": _unary(_numeric(math.ceil)),
    "floor": _unary(_numeric(math.floor)),
    "round": _round,
    "lower": _unary(_textual(str.lower)),
    "upper": _unary(_textual(str.upper)),
    "length": _unary(_textual(len)),
    "coalesce": _coalesce,
    "nullif": _binary(lambda a, b: None if _equal(a, b) else a),
    "starts_with": _binary(_starts_with),
}
