"""`where=` and `select=` evaluated: a checked tree becomes closures, compiled once per subscription and called once per event.

SQL's three-valued logic: a missing field is NULL, a comparison with NULL is NULL, and only TRUE lets an event pass. Values keep their
JSON types: a number compared with a string, or any operator on a value of the wrong type, is NULL and never an error, because one odd
event must not stop a stream. `/` divides as 64-bit floats, x / 0 is NULL; strings compare by code point; LIKE tells case, ILIKE does not.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final, TypeAlias

from edgewake.cloud.log.filter_syntax import Call, Column, Field, Node, Value, parse_select, parse_where
from edgewake.protocol.errors import FilterError
from edgewake.protocol.frame import Scalar

Event: TypeAlias = Mapping[str, Any]
Evaluate: TypeAlias = Callable[[Event], Any]
Predicate: TypeAlias = Callable[[Event], bool]
Projection: TypeAlias = Callable[[Event], dict[str, Any]]

_INT64: Final = 2**63
_FILTERS_KEPT: Final = 256
"""Compiled filters kept for the next subscription with the same text; the least used goes first."""


@lru_cache(_FILTERS_KEPT)
def compile_where(text: str) -> Predicate:
    """A predicate for `where=`; raises FilterError."""
    evaluate = _compile(parse_where(text))
    return lambda event: evaluate(event) is True


@lru_cache(_FILTERS_KEPT)
def compile_select(text: str) -> Projection:
    """A projection for `select=`: the columns in their order, NULL as null; raises FilterError."""
    columns = [(column.name, _column(column)) for column in parse_select(text)]

    def project(event: Event) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, evaluate in columns:
            if evaluate is None:
                row |= event
            else:
                row[name] = evaluate(event)
        return row

    return project


def _column(column: Column) -> Evaluate | None:
    return None if column.node is None else _compile(column.node)


def _compile(node: Node) -> Evaluate:
    match node:
        case Field(name):
            return lambda event: event.get(name)
        case Value(value):
            return lambda _: value
        case Call(name, args):
            return _COMPILERS[name](*map(_compile, args)) if name not in _WITH_PATTERN else _compile_like(name, args)
    raise AssertionError(node)


# Logic: only True, False and None come out.


def _and(*parts: Evaluate) -> Evaluate:
    def run(event: Event) -> bool | None:
        result: bool | None = True
        for part in parts:
            value = part(event)
            if value is False:
                return False
            if value is not True:
                result = None
        return result

    return run


def _or(*parts: Evaluate) -> Evaluate:
    def run(event: Event) -> bool | None:
        result: bool | None = False
        for part in parts:
            value = part(event)
            if value is True:
                return True
            if value is not False:
                result = None
        return result

    return run


def _negated(value: object) -> bool | None:
    return (not value) if value is True or value is False else None


def _is(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda event: left(event) is right(event)


def _in(left: Evaluate, *items: Evaluate) -> Evaluate:
    return _or(*(_binary(_equal)(left, item) for item in items))


def _between(value: Evaluate, low: Evaluate, high: Evaluate) -> Evaluate:
    return _and(_COMPILERS[">="](value, low), _COMPILERS["<="](value, high))


# Comparison and arithmetic: NULL unless both are of one kind.

_NUMBERS: Final = (int, float)


def _same_kind(a: Scalar, b: Scalar) -> bool:
    kind, other = type(a), type(b)
    return (kind is other and a is not None) or (kind in _NUMBERS and other in _NUMBERS)


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    return lambda a, b: compare(a, b) if _same_kind(a, b) else None


_equal: Final = _compared(operator.eq)


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
    return lambda a: calculate(a) if type(a) is str else None


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
        return next((value for part in parts if (value := part(event)) is not None), None)

    return run


def _starts_with(text: Any, prefix: Any) -> bool | None:
    return text.startswith(prefix) if type(text) is str and type(prefix) is str else None


# LIKE: pieces between `%` are found from left to right, each once, so no pattern makes it back-track.


def _compile_like(name: str, args: Sequence[Node]) -> Evaluate:
    value = _compile(args[0])
    pattern, escape = (arg.value for arg in (*args[1:], Value(None))[:2] if isinstance(arg, Value))
    ignore_case = name.endswith("ilike")
    matches = like_matcher(str(pattern), escape=None if escape is None else str(escape), ignore_case=ignore_case)
    like = _textual(matches)
    if name.startswith("not_"):
        return lambda event: _negated(like(value(event)))
    return lambda event: like(value(event))


def like_matcher(pattern: str, *, escape: str | None = None, ignore_case: bool = False) -> Callable[[str], bool]:
    """Does the whole of a text match `pattern` (`%` any characters, `_` one)? At most len(text) × len(pattern) steps."""
    pieces = [_piece(piece, ignore_case) for piece in _split_like(pattern, escape)]
    first, *rest = pieces
    if not rest:
        return lambda text: first.fullmatch(text) is not None
    *middle, last = rest
    last_length = len(_split_like(pattern, escape)[-1])

    def run(text: str) -> bool:
        found = first.match(text)
        if found is None:
            return False
        at = found.end()
        for piece in middle:
            found = piece.search(text, at)
            if found is None:
                return False
            at = found.end()
        tail = len(text) - last_length
        return tail >= at and last.fullmatch(text, tail) is not None

    return run


def _split_like(pattern: str, escape: str | None) -> list[list[str | None]]:
    """Pieces between the `%`; each a list of characters, None for `_`."""
    pieces: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            literal = next(characters, None)
            if literal is None:
                raise FilterError("where: LIKE: the pattern ends with the ESCAPE character")
            pieces[-1].append(literal)
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    return pieces


def _piece(piece: list[str | None], ignore_case: bool) -> re.Pattern[str]:
    text = "".join("." if character is None else re.escape(character) for character in piece)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignore_case else 0))


_WITH_PATTERN: Final = frozenset({"like", "ilike", "not_like", "not_ilike"})

_COMPILERS: Final[Mapping[str, Callable[..., Evaluate]]] = {
    "and": _and,
    "or": _or,
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
