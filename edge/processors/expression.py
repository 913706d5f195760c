"""Expressions over a reading's fields: `speed_kmh / 3.6`, `temperature > 80 AND NOT door = 'open'`.

The text is parsed once into a checked tree of the operators and functions listed here; nothing else
of it is ever run. Its length, nesting and number of parts are bounded, so what one reading costs is
known before the first one comes. The language is SQL's:

    OR  AND  NOT   = <> < <= > >= IS [NOT] NULL [NOT] IN (…) [NOT] BETWEEN x AND y + - * / % TRUE
                   FALSE NULL 1.5 'it''s'
    abs ceil coalesce exp floor greatest if least length ln lower pow round sqrt upper

A name is a field, or `t`, the event time in ms. NULL is what is missing, of another type than the
operator takes, or no finite number (a division by zero); an operator that is given NULL gives NULL,
but for AND, OR, IS NULL, coalesce and if, as in SQL. Numbers are 64-bit floats.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeAlias

from edgewake.edge.log.tables.codec import Reading
from edgewake.protocol.frames.frame import Scalar
from edgewake.protocol.names import is_field

TEXT_CHARS_MAX: Final = 2000
"""Characters of an expression; longer ones are refused: no person wrote them."""
DEPTH_MAX: Final = 30
"""Nesting; deeper ones are refused, for parsing and evaluating recurse over it."""
PARTS_MAX: Final = 200
"""Names, constants, operators and functions: the cost of one evaluation, about 0.1 µs each, 2 µs of
`round`. More are refused."""
ROUND_DIGITS_MAX: Final = 15
"""The most digits behind the point, or before it, that `round` takes: a float has no more. A larger
number counts as this one."""


class ExpressionError(ValueError):
    """What is wrong with an expression, where, and what was expected."""


@dataclass(frozen=True, slots=True)
class Name:
    """A field, or `t`."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number, a text, TRUE, FALSE or NULL."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function of FUNCTIONS."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = Name | Constant | Call
Evaluate: TypeAlias = Callable[[Reading], Scalar]


def parse(text: str) -> Expression:
    """The tree of an expression; raises ExpressionError."""
    if len(text) > TEXT_CHARS_MAX:
        raise ExpressionError(f"{len(text)} characters: expected at most {TEXT_CHARS_MAX}")
    return _Parser(text).whole()


def compiled(text: str) -> Evaluate:
    """Compile an expression to a function of a reading, which never raises.

    Raises ExpressionError now for a wrong text.
    """
    return _compile(parse(text))


# Values
# --------------------------------------------------------------------------------------------------


def is_number(value: Scalar) -> bool:
    """A truth value is not a number."""
    return value.__class__ is float or value.__class__ is int


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _of_numbers(function: Callable[..., float]) -> Callable[..., Scalar]:
    def apply(*values: Scalar) -> Scalar:
        if not all(map(is_number, values)):
            return None
        try:
            return _finite(float(function(*map(float, values))))  # type: ignore[arg-type]  # numbers, as just seen
        except (ValueError, ArithmeticError):
            return None

    return apply


def _of_texts(function: Callable[[str], Scalar]) -> Callable[..., Scalar]:
    return lambda value: function(value) if isinstance(value, str) else None


def _alike(one: Scalar, other: Scalar) -> bool:
    return (is_number(one) and is_number(other)) or (
        one.__class__ is other.__class__ and one is not None
    )


def _compared(compare: Callable[..., bool]) -> Callable[..., Scalar]:
    return lambda one, other: compare(one, other) if _alike(one, other) else None


def _and(*values: Scalar) -> Scalar:
    if any(value is False for value in values):
        return False
    return True if all(value is True for value in values) else None


def _or(*values: Scalar) -> Scalar:
    if any(value is True for value in values):
        return True
    return False if all(value is False for value in values) else None


def _not(value: Scalar) -> Scalar:
    return None if not isinstance(value, bool) else not value


def _in(value: Scalar, *others: Scalar) -> Scalar:
    return _or(*(value == other if _alike(value, other) else None for other in others))


def _between(value: Scalar, low: Scalar, high: Scalar) -> Scalar:
    return _and(FUNCTIONS[">="].apply(value, low), FUNCTIONS["<="].apply(value, high))


def _extreme(choose: Callable[..., Scalar]) -> Callable[..., Scalar]:
    def apply(*values: Scalar) -> Scalar:
        return choose(values) if all(_alike(values[0], value) for value in values) else None

    return apply


def _coalesce(*values: Scalar) -> Scalar:
    return next((value for value in values if value is not None), None)


def _if(condition: Scalar, then: Scalar, otherwise: Scalar) -> Scalar:
    return then if condition is True else otherwise


def _round(value: float, digits: float = 0.0) -> float:
    """Half away from zero, as SQL and the access servers; Python's own rounds half to even."""
    # A device pays for it when it rounds.
    from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

    places = int(min(max(digits, -ROUND_DIGITS_MAX), ROUND_DIGITS_MAX))
    try:
        return float(Decimal(repr(value)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))
    except InvalidOperation:  # more digits than a decimal keeps: nothing behind the point to round
        return value


@dataclass(frozen=True, slots=True)
class Function:
    """What a function does, and how many arguments it takes."""

    apply: Callable[..., Scalar]
    least: int
    most: int


_MANY: Final = PARTS_MAX

FUNCTIONS: Final[dict[str, Function]] = {
    "+": Function(_of_numbers(operator.add), 2, 2),
    "-": Function(_of_numbers(operator.sub), 2, 2),
    "*": Function(_of_numbers(operator.mul), 2, 2),
    "/": Function(_of_numbers(operator.truediv), 2, 2),
    "%": Function(_of_numbers(math.fmod), 2, 2),
    "negative": Function(_of_numbers(operator.neg), 1, 1),
    "=": Function(_compared(operator.eq), 2, 2),
    "<>": Function(_compared(operator.ne), 2, 2),
    "<": Function(_compared(operator.lt), 2, 2),
    "<=": Function(_compared(operator.le), 2, 2),
    ">": Function(_compared(operator.gt), 2, 2),
    ">=": Function(_compared(operator.ge), 2, 2),
    "and": Function(_and, 2, 2),
    "or": Function(_or, 2, 2),
    "not": Function(_not, 1, 1),
    "is_null": Function(lambda value: value is None, 1, 1),
    "in": Function(_in, 2, _MANY),
    "between": Function(_between, 3, 3),
    "abs": Function(_of_numbers(abs), 1, 1),
    "ceil": Function(_of_numbers(math.ceil), 1, 1),
    "coalesce": Function(_coalesce, 1, _MANY),
    "exp": Function(_of_numbers(math.exp), 1, 1),
    "floor": Function(_of_numbers(math.floor), 1, 1),
    "greatest": Function(_extreme(max), 1, _MANY),
    "if": Function(_if, 3, 3),
    "least": Function(_extreme(min), 1, _MANY),
    "length": Function(_of_texts(lambda text: float(len(text))), 1, 1),
    "ln": Function(_of_numbers(math.log), 1, 1),
    "lower": Function(_of_texts(str.lower), 1, 1),
    "pow": Function(_of_numbers(math.pow), 2, 2),
    "round": Function(_of_numbers(_round), 1, 2),
    "sqrt": Function(_of_numbers(math.sqrt), 1, 1),
    "upper": Function(_of_texts(str.upper), 1, 1),
}
CALLABLE: Final = frozenset(name for name in FUNCTIONS if name.isalpha()) - {
    "and",
    "or",
    "not",
    "in",
    "between",
    "negative",
}
"""Those that are written with parentheses."""


def _compile(tree: Expression) -> Evaluate:
    match tree:
        case Constant(value):
            return lambda _reading: value
        case Name("t"):
            return lambda reading: reading[0]
        case Name(name):
            return lambda reading: reading[1].get(name)
        case Call(function, arguments):
            return _compile_call(
                FUNCTIONS[function].apply, [_compile(argument) for argument in arguments]
            )


def _compile_call(apply: Callable[..., Scalar], inner: Sequence[Evaluate]) -> Evaluate:
    if len(inner) == 1:
        (only,) = inner
        return lambda reading: apply(only(reading))
    if len(inner) == 2:
        left, right = inner
        return lambda reading: apply(left(reading), right(reading))
    return lambda reading: apply(*[evaluate(reading) for evaluate in inner])


# Text → tree
# --------------------------------------------------------------------------------------------------

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<text>'(?:[^']|'')*')|"
    r"(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign><>|!=|<=|>=|==|[-+*/%=<>(),])|(?P<end>$))"
)
_COMPARISONS: Final = {
    "=": "=",
    "==": "=",
    "<>": "<>",
    "!=": "<>",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_WORDS: Final = frozenset({"and", "or", "not", "is", "in", "between", *_CONSTANTS})


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while True:
        found = _TOKEN.match(text, at)
        if found is None:
            raise ExpressionError(
                f"character {at + 1}: {text[at:].strip()[:20]!r} is not a part of an expression"
            )
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], found.start(kind))
        if kind == "end":
            return
        at = found.end()


class _Parser:
    """Recursive descent, loosest operator first."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0
        self._parts = 0

    def whole(self) -> Expression:
        tree = self._either()
        if self._token.kind != "end":
            raise self._expected("an operator or the end")
        return tree

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _expected(self, what: str) -> ExpressionError:
        found = repr(self._token.text[:40]) if self._token.kind != "end" else "the end"
        return ExpressionError(f"character {self._token.at + 1}: expected {what}, found {found}")

    def _take(self, *words: str) -> str | None:
        """The next token, in lower case, where it is one of these."""
        word = self._token.text.lower() if self._token.kind in {"word", "sign"} else None
        if word not in words:
            return None
        self._next += 1
        return word

    def _need(self, word: str) -> None:
        if self._take(word) is None:
            raise self._expected(repr(word))

    def _part(self, tree: Expression) -> Expression:
        self._parts += 1
        if self._parts > PARTS_MAX:
            raise ExpressionError(
                f"more than {PARTS_MAX} names, constants, operators and functions"
            )
        return tree

    def _call(self, function: str, *arguments: Expression) -> Expression:
        return self._part(Call(function, arguments))

    def _deeper(self, inner: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ExpressionError(f"character {self._token.at + 1}: nested deeper than {DEPTH_MAX}")
        tree = inner()
        self._depth -= 1
        return tree

    def _chain(self, inner: Callable[[], Expression], *operators: str) -> Expression:
        """`a + b - c`: a long one is as deep a tree as a nested one."""
        tree, depth = inner(), self._depth
        while (sign := self._take(*operators)) is not None:
            self._depth += 1
            tree = self._call(sign, tree, self._deeper(inner))
        self._depth = depth
        return tree

    def _either(self) -> Expression:
        return self._chain(self._both, "or")

    def _both(self) -> Expression:
        return self._chain(self._negated, "and")

    def _negated(self) -> Expression:
        if self._take("not") is not None:
            return self._call("not", self._deeper(self._negated))
        return self._compared()

    def _compared(self) -> Expression:
        left = self._sum()
        if (sign := self._take(*_COMPARISONS)) is not None:
            return self._call(_COMPARISONS[sign], left, self._sum())
        if self._take("is") is not None:
            negated = self._take("not") is not None
            self._need("null")
            return self._unless(negated, self._call("is_null", left))
        negated = self._take("not") is not None
        if self._take("in") is not None:
            return self._unless(negated, self._call("in", left, *self._list()))
        if self._take("between") is not None:
            low = self._sum()
            self._need("and")
            return self._unless(negated, self._call("between", left, low, self._sum()))
        if negated:
            raise self._expected("IN or BETWEEN")
        return left

    def _unless(self, negated: bool, tree: Expression) -> Expression:
        return self._call("not", tree) if negated else tree

    def _sum(self) -> Expression:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Expression:
        return self._chain(self._signed, "*", "/", "%")

    def _signed(self) -> Expression:
        if self._take("-") is not None:
            return self._call("negative", self._deeper(self._signed))
        return self._atom()

    def _atom(self) -> Expression:
        token = self._token
        if self._take("(") is not None:
            tree = self._deeper(self._either)
            self._need(")")
            return tree
        if token.kind in {"number", "text"}:
            self._next += 1
            return self._part(
                Constant(
                    _number(token)
                    if token.kind == "number"
                    else token.text[1:-1].replace("''", "'")
                )
            )
        if token.kind != "word" or token.text.lower() in _WORDS - set(_CONSTANTS):
            raise self._expected("a field, a constant or a function")
        self._next += 1
        if token.text.lower() in _CONSTANTS:
            return self._part(Constant(_CONSTANTS[token.text.lower()]))
        if self._token.text == "(":
            return self._function(token)
        if token.text != "t" and not is_field(token.text):
            raise ExpressionError(
                f"character {token.at + 1}: {token.text[:40]!r} is not a name of a field"
            )
        return self._part(Name(token.text))

    def _function(self, token: _Token) -> Expression:
        name = token.text.lower()
        if name not in CALLABLE:
            close = get_close_matches(name, CALLABLE, n=1)
            expected = (
                f"did you mean {close[0]}?"
                if close
                else f"expected one of {', '.join(sorted(CALLABLE))}"
            )
            raise ExpressionError(
                f"character {token.at + 1}: {name[:40]!r} is not a function: {expected}"
            )
        arguments = self._list()
        takes = FUNCTIONS[name]
        if not takes.least <= len(arguments) <= takes.most:
            count = (
                str(takes.least) if takes.least == takes.most else f"{takes.least} to {takes.most}"
            )
            raise ExpressionError(
                f"character {token.at + 1}: {name} takes {count} arguments, found {len(arguments)}"
            )
        return self._call(name, *arguments)

    def _list(self) -> list[Expression]:
        self._need("(")
        found = [self._deeper(self._either)]
        while self._take(",") is not None:
            found.append(self._deeper(self._either))
        self._need(")")
        return found


def _number(token: _Token) -> float:
    value = float(token.text)
    if not math.isfinite(value):
        raise ExpressionError(f"character {token.at + 1}: {token.text[:40]} is not a finite number")
    return value
