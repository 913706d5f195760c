"""Expressions of query files: from SQL text's tree to a small tree of our own, with types. Nothing else of SQL passes.

What a user writes never reaches Spark as text: `columns` makes Spark columns from this tree, and this tree can only be made of the
operators and functions listed here. No I/O, no Spark. What is refused goes to the scope's faults, with its place, and NULL stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeAlias

from sqlglot import exp

from edgewake.cloud.analysis.query_faults import Faults
from edgewake.protocol.errors import QueryError
from edgewake.protocol.stream import FieldType

DEPTH_MAX: Final = 30
"""Nesting of an expression; deeper ones are refused. Python and Spark both recurse over it."""
LIST_MAX: Final = 200
"""Items of an IN list or arguments of a function; more are refused."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a reading, or `device`."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is SQL's NULL."""

    value: float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or function from FUNCTIONS."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = Field | Literal | Call
Kind: TypeAlias = FieldType | None
"""None: not known (no catalogue at hand, or NULL); it fits everywhere."""

_N, _S, _B = FieldType.NUMBER, FieldType.STRING, FieldType.BOOLEAN
_SAME: Final = "same"
"""All arguments of one type, whichever."""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes (the last one repeats when `repeats`) and gives."""

    takes: tuple[FieldType | str, ...]
    gives: FieldType | str
    repeats: bool = False


FUNCTIONS: Final[Mapping[str, Signature]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%"), Signature((_N, _N), _N)),
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">="), Signature((_SAME, _SAME), _B)),
    **dict.fromkeys(("and", "or"), Signature((_B, _B), _B)),
    **dict.fromkeys(("negative", "abs", "floor", "ceil", "sqrt", "ln", "exp"), Signature((_N,), _N)),
    **dict.fromkeys(("lower", "upper", "trim"), Signature((_S,), _S)),
    **dict.fromkeys(("least", "greatest", "coalesce"), Signature((_SAME,), _SAME, repeats=True)),
    "not": Signature((_B,), _B),
    "is_null": Signature((_SAME,), _B),
    "in": Signature((_SAME,), _B, repeats=True),
    "between": Signature((_SAME, _SAME, _SAME), _B),
    "like": Signature((_S, _S), _B),
    "round": Signature((_N, _N), _N),
    "pow": Signature((_N, _N), _N),
    "length": Signature((_S,), _N),
    "case": Signature((_SAME,), _SAME, repeats=True),  # checked by _case: condition, value, …, default
}

AGGREGATES: Final = ("count", "sum", "avg", "min", "max", "approx_count_distinct", "approx_percentile", "approx_top_k")
"""What may stand alone in SELECT; `query_select` reads it."""

_OPERATORS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.And: "and", exp.Or: "or", exp.Like: "like", exp.Pow: "pow",
}  # fmt: skip
_UNARY: Final[Mapping[type[exp.Expr], str]] = {
    exp.Not: "not", exp.Neg: "negative", exp.Abs: "abs", exp.Sqrt: "sqrt", exp.Ln: "ln", exp.Exp: "exp",
    exp.Lower: "lower", exp.Upper: "upper", exp.Length: "length",
}  # fmt: skip
_LISTS: Final[Mapping[type[exp.Expr], str]] = {exp.Least: "least", exp.Greatest: "greatest", exp.Coalesce: "coalesce"}


@dataclass(frozen=True, slots=True)
class Scope:
    """The names an expression may use, with their types. `types` None: no catalogue at hand, every name is believed."""

    types: Mapping[str, Kind] | None
    extra: Mapping[str, Kind]
    """`device`, and the two names of an UNPIVOT."""
    faults: Faults
    """Takes what is refused."""

    def kind(self, name: str) -> Kind:
        """Type of a name; raises QueryError with the nearest names."""
        if name in self.extra:
            return self.extra[name]
        if self.types is None:
            return None
        if name in self.types:
            return self.types[name]
        known = [*self.types, *self.extra]
        close = get_close_matches(name, known, n=1)
        raise QueryError(
            f"unknown field {name!r}: " + (f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}")
        )


def translate(node: exp.Expr, scope: Scope, clause: str, depth: int = 0) -> tuple[Expression, Kind]:
    """Our tree and its type. `clause` names the place in error texts."""

    def inner(part: exp.Expr) -> tuple[Expression, Kind]:
        return translate(part, scope, clause, depth + 1)

    with scope.faults.within(node):
        if depth > DEPTH_MAX:
            raise QueryError(f"{clause}: nested deeper than {DEPTH_MAX}")
        return _translate(node, scope, clause, inner)
    return Literal(None), None


Inner: TypeAlias = Callable[[exp.Expr], tuple[Expression, Kind]]


def _translate(node: exp.Expr, scope: Scope, clause: str, inner: Inner) -> tuple[Expression, Kind]:
    kind = type(node)
    if kind is exp.Paren:
        return inner(node.this)
    if kind is exp.Column:
        return _field(node, scope, clause)
    if kind in (exp.Literal, exp.Boolean, exp.Null):
        return _literal(node)
    if kind in _OPERATORS:
        return _call(_OPERATORS[kind], [inner(node.this), inner(node.expression)], clause)
    if kind is exp.Cast or kind is exp.TryCast:
        raise QueryError(f"{clause}: CAST is not supported; fields keep the type of the catalogue")
    return _function(node, clause, inner)


def _function(node: exp.Expr, clause: str, inner: Inner) -> tuple[Expression, Kind]:
    kind = type(node)
    only = _only(node)
    if kind in _UNARY and only({"this"}):
        return _call(_UNARY[kind], [inner(node.this)], clause)
    if kind in _LISTS and only({"this", "expressions", "is_nvl", "ignore_nulls"}):
        return _call(_LISTS[kind], _all(inner, [node.this, *node.expressions], clause), clause)
    if kind is exp.In and only({"this", "expressions"}):
        return _call("in", _all(inner, [node.this, *node.expressions], clause), clause)
    if kind is exp.Between and only({"this", "low", "high"}):
        return _call("between", [inner(node.this), inner(node.args["low"]), inner(node.args["high"])], clause)
    if kind is exp.Is and isinstance(node.expression, exp.Null):
        return _call("is_null", [inner(node.this)], clause)
    if kind is exp.Case:
        return _case(node, clause, inner)
    if kind in (exp.Floor, exp.Ceil) and only({"this"}):
        return _call("floor" if kind is exp.Floor else "ceil", [inner(node.this)], clause)
    if kind is exp.Round and only({"this", "decimals"}):
        return _call("round", [inner(node.this), _digits(node, clause)], clause)
    if kind is exp.Trim and only({"this"}):
        return _call("trim", [inner(node.this)], clause)
    raise refused(node, clause)


def _only(node: exp.Expr) -> Callable[[set[str]], bool]:
    """Does the node carry these arguments and no others? What we do not read must not be dropped silently."""
    given = {name for name, value in node.args.items() if value not in (None, [], False)}
    return lambda allowed: given <= allowed


def _digits(node: exp.Expr, clause: str) -> tuple[Expression, Kind]:
    digits = node.args.get("decimals")
    if digits is None:
        return Literal(0), _N
    if isinstance(digits, exp.Literal) and not digits.is_string and digits.this.isdigit() and int(digits.this) <= 15:
        return Literal(int(digits.this)), _N
    raise QueryError(f"{clause}: round(x, digits): expected digits from 0 to 15")


def _all(inner: Inner, nodes: Sequence[exp.Expr], clause: str) -> list[tuple[Expression, Kind]]:
    if len(nodes) > LIST_MAX:
        raise QueryError(f"{clause}: a list of {len(nodes)}: expected at most {LIST_MAX}")
    return [inner(node) for node in nodes]


def refused(node: exp.Expr, clause: str) -> QueryError:
    """A sentence for what is not allowed."""
    text = node.sql()[:60]
    if isinstance(node, exp.Subquery | exp.Query) or node.find(exp.Query):
        return QueryError(f"{clause}: {text!r} is a subquery: expected an expression over the fields of one stream")
    if isinstance(node, exp.AggFunc):
        return QueryError(f"{clause}: aggregate {text!r} is only possible alone in SELECT")
    if isinstance(node, exp.Window):
        return QueryError(f"{clause}: {text!r}: OVER is not supported; windows of time are written in GROUP BY")
    name = str(node.this) if isinstance(node, exp.Anonymous) else node.sql_name().lower() if isinstance(node, exp.Func) else ""
    allowed = sorted(function for function in FUNCTIONS if function.isidentifier())
    close = get_close_matches(name.lower(), [*allowed, *AGGREGATES], n=1)
    what = f"function {name}() is not allowed" if name else f"{text!r} is not supported"
    expected = f"did you mean {close[0]}?" if close else f"expected + - * / % comparisons, LIKE, CASE or one of {', '.join(allowed)}"
    return QueryError(f"{clause}: {what}: {expected}")


def _field(node: exp.Expr, scope: Scope, clause: str) -> tuple[Expression, Kind]:
    if set(filter(node.args.get, node.args)) != {"this"} or not isinstance(node.this, exp.Identifier):
        raise QueryError(f"{clause}: {node.sql()[:60]!r}: expected a plain field name")
    name = node.this.name
    try:
        return Field(name), scope.kind(name)
    except QueryError as error:
        raise QueryError(f"{clause}: {error}") from error


def _literal(node: exp.Expr) -> tuple[Expression, Kind]:
    if isinstance(node, exp.Null):
        return Literal(None), None
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this)), _B
    if node.args.get("is_string"):
        return Literal(str(node.this)), _S
    return Literal(number(str(node.this))), _N


def number(text: str) -> float:
    """A number as SQL writes it; raises QueryError."""
    try:
        return float(text)
    except ValueError as error:
        raise QueryError(f"{text[:40]!r} is not a number") from error


def _case(node: exp.Expr, clause: str, inner: Inner) -> tuple[Expression, Kind]:
    if node.this is not None:
        raise QueryError(f"{clause}: expected CASE WHEN condition THEN value … ELSE value END")
    branches = node.args.get("ifs") or []
    conditions = [inner(branch.this) for branch in branches]
    values = [inner(branch.args["true"]) for branch in branches]
    default = node.args.get("default")
    values.append((Literal(None), None) if default is None else inner(default))
    _check_kinds("CASE condition", [kind for _, kind in conditions], _B, clause)
    kind = _one_kind("CASE", [kind for _, kind in values], clause)
    arguments = [part for pair in zip(conditions, values, strict=False) for part in pair] + [values[-1]]
    return Call("case", tuple(argument for argument, _ in arguments)), kind


def _call(function: str, arguments: Sequence[tuple[Expression, Kind]], clause: str) -> tuple[Expression, Kind]:
    signature = FUNCTIONS[function]
    kinds = [kind for _, kind in arguments]
    same: Kind = None
    if _SAME in signature.takes:
        same = _one_kind(function, kinds, clause)
    else:
        for taken, kind in zip(signature.takes, kinds, strict=True):
            _check_kinds(function, [kind], taken, clause)
    gives = same if signature.gives == _SAME else FieldType(signature.gives)
    return Call(function, tuple(argument for argument, _ in arguments)), gives


def _check_kinds(what: str, kinds: Sequence[Kind], expected: FieldType | str, clause: str) -> None:
    for kind in kinds:
        if kind is not None and kind != expected:
            raise QueryError(f"{clause}: {what} takes a {expected}, found a {kind}")


def _one_kind(what: str, kinds: Sequence[Kind], clause: str) -> Kind:
    found = {kind for kind in kinds if kind is not None}
    if len(found) > 1:
        raise QueryError(f"{clause}: {what} compares a {' with a '.join(sorted(found))}")
    return found.pop() if found else None


def fields_of(expression: Expression) -> Iterator[str]:
    """The names that an expression uses."""
    if isinstance(expression, Field):
        yield expression.name
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from fields_of(argument)


def substitute(expression: Expression, values: Mapping[str, Expression]) -> Expression:
    """The same expression with names replaced, as UNPIVOT needs it: once for each of its fields."""
    if isinstance(expression, Field):
        return values.get(expression.name, expression)
    if isinstance(expression, Call):
        return Call(expression.function, tuple(substitute(argument, values) for argument in expression.arguments))
    return expression
