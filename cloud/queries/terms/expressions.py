"""Expressions of query files: from SQL text's tree to a small tree of our own, with types.

Nothing else of SQL passes.

What a user writes never reaches Spark as text: `columns` makes Spark columns from this tree, and
this tree can only be made of the operators and functions of functions.py. No I/O, no Spark. What is
refused goes to the scope's faults, with its place; NULL stands for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Final, TypeAlias
from zoneinfo import ZoneInfo

from sqlglot import exp

from edgewake.cloud.queries import advice
from edgewake.cloud.queries.terms.calls import Typed, call, check_kinds, one_kind
from edgewake.cloud.queries.terms.faults import Faults
from edgewake.cloud.queries.terms.functions import (
    BOOLEAN,
    DATE_PATTERN,
    FUNCTIONS,
    NAMES,
    NUMBER,
    READ_AS,
    READ_BY_NAME,
    STRING,
    TIME,
    TIME_PARTS,
    TIME_UNITS,
    Kind,
    check_like,
    check_regex,
)
from edgewake.cloud.queries.terms.tree import (
    Call,
    Expression,
    Field,
    Literal,
    size_of,
)
from edgewake.protocol.errors import QueryError

DEPTH_MAX: Final = 30
"""Nesting of an expression; deeper ones are refused. Python and Spark both recurse over it."""
SIZE_MAX: Final = 2_000
"""Functions, names and constants of an expression as Spark gets it, with every copy (Call.size);
what is larger is refused. Spark's time and memory grow with it."""
LIST_MAX: Final = 200
"""Items of an IN list or arguments of a function; more are refused."""


TIMES: Final[Mapping[str, str]] = {
    "event_time": "t",
    "received_at": "received_at",
    "sent_at": "sent_at",
}
"""The times of a reading, as a user writes them → as a reading has them, in ms: when it was made,
when a bridge had it, when it was sent.

The device's own times are corrected (plan/clock_correction.py).
"""
READING: Final = ("device", *TIMES.values())
"""What each reading has beside its fields."""

AGGREGATE_FUNCTIONS: Final = (
    "count", "sum", "avg", "min", "max", "count_if", "stddev", "stddev_pop", "variance", "var_pop",
    "corr", "covar_pop", "covar_samp",
    "regr_slope", "regr_intercept", "first", "last", "min_by", "max_by", "bool_and", "bool_or",
    "median", "percentile", "mode",
    "approx_count_distinct", "approx_percentile", "approx_top_k",
)  # fmt: skip
"""What stands for all readings of a window and group; `aggregates` reads it."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The names an expression may use, with their types.

    `types` None: no catalogue at hand, every name is believed.
    """

    types: Mapping[str, Kind] | None
    extra: Mapping[str, Kind]
    """`device`, the times, and the two names of an UNPIVOT; over results, their columns."""
    faults: Faults
    """Takes what is refused."""
    zone: str = "UTC"
    """The zone of the functions of time."""
    special: Callable[[exp.Expr], Typed | None] | None = None
    """Reads a node before anybody else does, or gives None: over results, aggregates and GROUP BY's
    expressions."""

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
            f"unknown field {name!r}: "
            + (f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known))}")
        )


def translate(node: exp.Expr | None, scope: Scope, clause: str, depth: int = 0) -> Typed:
    """Our tree and its type. `clause` names the place in error texts; without a node, a fault."""

    def inner(part: exp.Expr) -> Typed:
        return translate(part, scope, clause, depth + 1)

    with scope.faults.within(node):
        if depth > DEPTH_MAX:
            raise QueryError(f"{clause}: nested deeper than {DEPTH_MAX}")
        if node is None:
            raise QueryError(f"{clause}: an argument is missing, as in count(*), avg(x), year(x)")
        read = None if scope.special is None else scope.special(node)
        return _of_bounded_size(
            _translate(node, scope, clause, inner) if read is None else read, node, clause
        )
    return Literal(None), None


def _of_bounded_size(read: Typed, node: exp.Expr, clause: str) -> Typed:
    if (size := size_of(read[0])) > SIZE_MAX:
        raise QueryError(
            f"{clause}: {sql_of(node)!r} has {size} functions, names and constants once nothing "
            "in it is shared: expected at most"
            f" {SIZE_MAX}; nest less in it, or compute a part of it in the device's chain or in a "
            "query of its own"
        )
    return read


Inner: TypeAlias = Callable[[exp.Expr], Typed]


def _translate(node: exp.Expr, scope: Scope, clause: str, inner: Inner) -> Typed:
    kind = type(node)
    if kind is exp.Paren:
        return inner(node.this)
    if kind is exp.Column:
        return _field(node, scope, clause)
    if kind in (exp.Literal, exp.Boolean, exp.Null):
        return _literal(node)
    if kind is exp.Cast or kind is exp.TryCast:
        return _cast(node, scope, clause, inner)
    if (time := _of_time(node, scope, clause, inner)) is not None:
        return time
    if kind in READ_AS:
        return _known(node, clause, inner)
    if (rewritten := _rewritten(node, clause, inner)) is not None:
        return rewritten
    raise refused(node, clause)


def _known(node: exp.Expr, clause: str, inner: Inner) -> Typed:
    name, arguments = READ_AS[type(node)]
    if not given(node) <= HARMLESS.union(arguments) or not all(
        node.args.get(argument) for argument in arguments
    ):
        raise refused(node, clause)
    read = [inner(node.args[argument]) for argument in arguments]
    if name in ("rlike", "like", "ilike"):
        _check_pattern(name, read[1][0], clause)
    return call(name, read, clause)


HARMLESS: Final = frozenset({"big_int", "safe", "coalesce", "typed", "null_if_pos_overflow"})
"""What sqlglot notes of a dialect, and what changes nothing here: of division, that / is never of
whole numbers."""


def _check_pattern(name: str, pattern: Expression, clause: str) -> None:
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise QueryError(f"{clause}: {name.upper()}: expected a pattern in quotes")
    check = check_regex if name == "rlike" else check_like
    try:
        check(pattern.value)
    except QueryError as error:
        raise QueryError(f"{clause}: {error}") from error


def _rewritten(node: exp.Expr, clause: str, inner: Inner) -> Typed | None:  # noqa: C901  (one line for each form)
    """What is made of other functions, or takes arguments in a way of its own."""
    kind = type(node)
    only = given(node)
    if kind in _LISTS and only <= {
        "this",
        "expressions",
        "is_nvl",
        "ignore_nulls",
        "safe",
        "coalesce",
    }:
        first = [] if node.this is None else [node.this]
        return call(_LISTS[kind], _all(inner, [*first, *node.expressions], clause), clause)
    if kind is exp.In and only <= {"this", "expressions"}:
        if not node.expressions:
            raise QueryError(f"{clause}: IN: expected a list of values, as in IN (1, 2)")
        return call("in", _all(inner, [node.this, *node.expressions], clause), clause)
    if kind is exp.Is and isinstance(node.expression, exp.Null):
        return call("is_null", [inner(node.this)], clause)
    if kind is exp.Is and isinstance(node.expression, exp.Boolean):
        return call("<=>", [inner(node.this), inner(node.expression)], clause)
    if kind is exp.NullSafeNEQ:
        return call(
            "not", [call("<=>", [inner(node.this), inner(node.expression)], clause)], clause
        )
    if kind is exp.Case:
        return _case(node, clause, inner)
    if kind is exp.If:
        return _if(inner(node.this), node.args.get("true"), node.args.get("false"), clause, inner)
    if kind is exp.Nvl2:
        is_there = call("not", [call("is_null", [inner(node.this)], clause)], clause)
        return _if(is_there, node.args.get("true"), node.args.get("false"), clause, inner)
    if kind is exp.Nullif:
        value = inner(node.this)
        return _branches(
            [(call("=", [value, inner(node.expression)], clause), (Literal(None), None))],
            value,
            clause,
        )
    if kind is exp.Round and only <= {"this", "decimals"}:
        return call("round", [inner(node.this), _digits(node, clause)], clause)
    if kind is exp.Trim and only <= {"this", "position"} and node.args.get("position") in _TRIMS:
        return call(_TRIMS[node.args.get("position")], [inner(node.this)], clause)
    if kind is exp.Substring:
        length = node.args.get("length")
        rest = (Literal(_TEXT_LENGTH), NUMBER) if length is None else inner(length)
        return call("substring", [inner(node.this), inner(node.args["start"]), rest], clause)
    if kind is exp.Pi:
        return Literal(math.pi), NUMBER
    if kind is exp.Anonymous:
        return _by_name(node, clause, inner)
    return None


_LISTS: Final[Mapping[type[exp.Expr], str]] = {
    exp.Least: "least", exp.Greatest: "greatest", exp.Coalesce: "coalesce", exp.Concat: "concat",
}  # fmt: skip
_TRIMS: Final[Mapping[str | None, str]] = {None: "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_TEXT_LENGTH: Final = 1_000_000
"""Longer than any text."""


def _by_name(node: exp.Expr, clause: str, inner: Inner) -> Typed | None:
    name = str(node.this).lower()
    if name == "isnotnull" and len(node.expressions) == 1:
        return call("not", [call("is_null", [inner(node.expressions[0])], clause)], clause)
    if name in READ_BY_NAME:
        ours = READ_BY_NAME[name]
        if len(node.expressions) != len(FUNCTIONS[ours].takes):
            raise QueryError(f"{clause}: {name} takes {len(FUNCTIONS[ours].takes)} arguments")
        return call(ours, [inner(one) for one in node.expressions], clause)
    return None


def given(node: exp.Expr) -> set[str]:
    """The arguments that a node carries. What we do not read must not be dropped silently."""
    return {name for name, value in node.args.items() if value not in (None, [], False)}


def _digits(node: exp.Expr, clause: str) -> Typed:
    digits = node.args.get("decimals")
    if digits is None:
        return Literal(0), NUMBER
    if (
        isinstance(digits, exp.Literal)
        and not digits.is_string
        and digits.this.isdigit()
        and int(digits.this) <= 15
    ):
        return Literal(int(digits.this)), NUMBER
    raise QueryError(f"{clause}: round(x, digits): expected digits from 0 to 15")


def _all(inner: Inner, nodes: Sequence[exp.Expr], clause: str) -> list[Typed]:
    if len(nodes) > LIST_MAX:
        raise QueryError(f"{clause}: a list of {len(nodes)}: expected at most {LIST_MAX}")
    return [inner(node) for node in nodes]


def refused(node: exp.Expr, clause: str) -> QueryError:
    """A sentence for what is not allowed."""
    text = sql_of(node)
    if isinstance(node, exp.Subquery | exp.Query) or node.find(exp.Query):
        return QueryError(
            f"{clause}: {text!r} is a subquery: expected an expression over the fields of one "
            f"stream; {advice.STORED}"
        )
    instead = advice.of_node(node)
    if instead is not None:
        return QueryError(f"{clause}: {text!r} is not possible: {instead}")
    if isinstance(node, exp.AggFunc):
        return QueryError(
            f"{clause}: aggregate {text!r} is only possible in SELECT, HAVING and ORDER BY, and "
            "not within another one"
        )
    if isinstance(node, exp.Interval):
        return QueryError(
            f"{clause}: {text!r}: an interval is only possible as the size of a window; times are "
            "compared in ms: unix_millis(x)"
        )
    name = advice.function_name(node)
    allowed = sorted(NAMES)
    if name.lower() in allowed:
        return QueryError(
            f"{clause}: {text!r}: {name.lower()}() does not take these arguments (docs/queries.md)"
        )
    close = get_close_matches(name.lower(), [*allowed, *AGGREGATE_FUNCTIONS], n=1)
    what = f"function {name}() is not allowed" if name else f"{text!r} is not supported"
    expected = (
        f"did you mean {close[0]}?"
        if close
        else f"expected + - * / % comparisons, LIKE, CASE or one of {', '.join(allowed)}"
    )
    return QueryError(f"{clause}: {what}: {expected}")


def sql_of(node: exp.Expr) -> str:
    """A node's text, for error texts."""
    return node.sql(dialect="spark")[:60]


def _field(node: exp.Expr, scope: Scope, clause: str) -> Typed:
    if given(node) != {"this"} or not isinstance(node.this, exp.Identifier):
        raise QueryError(f"{clause}: {sql_of(node)!r}: expected a plain field name")
    name = node.this.name
    try:
        return Field(TIMES.get(name, name)), scope.kind(name)
    except QueryError as error:
        hint = (
            f"; as a text write it in single quotes: '{name[:40]}'"
            if node.this.args.get("quoted")
            else ""
        )
        raise QueryError(f"{clause}: {error}{hint}") from error


def _literal(node: exp.Expr) -> Typed:
    if isinstance(node, exp.Null):
        return Literal(None), None
    if isinstance(node, exp.Boolean):
        return Literal(bool(node.this)), BOOLEAN
    if node.args.get("is_string"):
        return Literal(str(node.this)), STRING
    return Literal(_exact(str(node.this))), NUMBER


def _exact(text: str) -> float:
    """A number that keeps its digits; raises QueryError."""
    found = number(text)
    if math.isinf(found):
        raise QueryError(f"{text[:40]} is too large: expected a number below 1.8e308")
    if text.isdigit() and int(found) != int(text):
        raise QueryError(
            f"{text[:40]} has more digits than a number keeps: whole numbers are exact up to 2^53 "
            "= 9007199254740992; send and compare"
            " such ids as texts, in quotes"
        )
    return found


def number(text: str) -> float:
    """A number as SQL writes it; raises QueryError."""
    try:
        return float(text)
    except ValueError as error:
        raise QueryError(f"{text[:40]!r} is not a number") from error


def _case(node: exp.Expr, clause: str, inner: Inner) -> Typed:
    subject = None if node.this is None else inner(node.this)
    branches = node.args.get("ifs") or []
    if any(given(branch) != {"this", "true"} for branch in branches):
        raise refused(node, clause)
    conditions = [inner(branch.this) for branch in branches]
    if subject is not None:
        conditions = [call("=", [subject, condition], clause) for condition in conditions]
    values = [inner(branch.args["true"]) for branch in branches]
    default = node.args.get("default")
    return _branches(
        list(zip(conditions, values, strict=True)),
        (Literal(None), None) if default is None else inner(default),
        clause,
    )


def _if(
    condition: Typed, true: exp.Expr | None, false: exp.Expr | None, clause: str, inner: Inner
) -> Typed:
    if true is None:
        raise QueryError(f"{clause}: expected if(condition, value, other)")
    return _branches(
        [(condition, inner(true))], (Literal(None), None) if false is None else inner(false), clause
    )


def _branches(pairs: Sequence[tuple[Typed, Typed]], default: Typed, clause: str) -> Typed:
    check_kinds("CASE condition", [condition[1] for condition, _ in pairs], BOOLEAN, clause)
    kind = one_kind("CASE", [*(value[1] for _, value in pairs), default[1]], clause)
    arguments = [part[0] for pair in pairs for part in pair] + [default[0]]
    return Call("case", tuple(arguments)), kind


_CASTS: Final[Mapping[str, tuple[str, ...]]] = {
    "number": ("DOUBLE",),
    "whole": ("INT", "BIGINT", "SMALLINT", "TINYINT"),
    "string": ("TEXT", "VARCHAR", "CHAR"),
    "time": ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"),
    "date": ("DATE",),
}


def _cast(node: exp.Expr, scope: Scope, clause: str, inner: Inner) -> Typed:
    wanted = str(getattr(node.args["to"].this, "value", node.args["to"].this)).upper()
    to = next((name for name, types in _CASTS.items() if wanted in types), None)
    if to == "time" and isinstance(node.this, exp.Literal) and node.this.is_string:
        return _time_literal(str(node.this.this), scope.zone, clause)
    value, kind = inner(node.this)
    if to == "date" and kind in (TIME, None):
        return _date(value, scope)
    if to == "number" or (to == "whole" and (kind is BOOLEAN or _is_whole(value))):
        return _as_number(value, kind, clause), NUMBER
    if to == "string" and kind is not TIME:
        name = {NUMBER: "number_text", BOOLEAN: "boolean_text"}.get(kind)  # type: ignore[arg-type]
        return (value if name is None else Call(name, (value,))), STRING
    expected = "double, string; of a time: date, or date_format(event_time, 'yyyy-MM-dd')"
    if wanted in _NO_CASTS:
        raise QueryError(f"{clause}: {sql_of(node)!r}: {_NO_CASTS[wanted]}")
    raise QueryError(
        f"{clause}: {sql_of(node)!r}: a {kind or 'value'} cannot be cast to {wanted}; expected "
        f"{expected}"
    )


_WHOLE: Final = (
    "one SQL cuts here and another rounds: write floor(x), ceil(x), round(x), or x div 1 to cut; "
    "of a text cast(x AS double)"
)
_NO_CASTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_CASTS["whole"], _WHOLE),
    "DECIMAL": (
        "a number has 15 digits here, and a point wherever it falls: round(x, 2); sums of whole "
        "numbers, as of cents, are exact"
    ),
    "FLOAT": "a number has 15 digits here: cast(x AS double)",
}
"""What SQL reads in more than one way, or keeps otherwise → what to write."""


def _is_whole(value: Expression) -> bool:
    return (
        isinstance(value, Literal) and isinstance(value.value, float) and value.value.is_integer()
    )


def _as_number(value: Expression, kind: Kind, clause: str) -> Expression:
    if kind is STRING:
        return Call("text_number", (value,))
    if kind is BOOLEAN:
        return Call(
            "case", (value, Literal(1.0), Call("not", (value,)), Literal(0.0), Literal(None))
        )
    if kind is TIME:
        raise QueryError(
            f"{clause}: a time is not a number; use unix_millis(event_time) or "
            "unix_timestamp(event_time)"
        )
    return value


def _time_literal(text: str, zone: str, clause: str) -> Typed:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise QueryError(
            f"{clause}: {text[:40]!r} is not a time; expected e.g. TIMESTAMP '2026-09-21 14:00:00'"
        ) from error
    at = at if at.tzinfo is not None else at.replace(tzinfo=ZoneInfo(zone))
    return Literal(int(at.timestamp() * 1000)), TIME


def _of_time(node: exp.Expr, scope: Scope, clause: str, inner: Inner) -> Typed | None:
    """Functions of a time: hour(event_time), date_trunc, date_format and others."""
    kind = type(node)
    zone: Typed = (Literal(scope.zone), STRING)
    if kind in TIME_PARTS:
        return call(TIME_PARTS[kind], [inner(_bare_time(node.this)), zone], clause)
    if kind is exp.Extract and str(node.this).lower() in TIME_UNITS:
        part = {"week": "weekofyear"}.get(str(node.this).lower(), str(node.this).lower())
        return call(part, [inner(node.expression), zone], clause)
    if kind is exp.Anonymous and str(node.this).lower() == "weekday" and len(node.expressions) == 1:
        return call("weekday", [inner(node.expressions[0]), zone], clause)
    if kind is exp.TimestampTrunc:
        return call(
            "date_trunc",
            [inner(node.this), (Literal(trunc_unit(node, clause)), STRING), zone],
            clause,
        )
    if kind is exp.TsOrDsToDate:
        return _date(inner(node.this)[0], scope)
    if kind is exp.TimeToStr:
        return call(
            "date_format",
            [inner(_bare_time(node.this)), (Literal(_pattern(node, clause)), STRING), zone],
            clause,
        )
    if kind is exp.StrToUnix:
        return call("unix_seconds", [inner(node.this)], clause)
    return None


def trunc_unit(node: exp.Expr, clause: str) -> str:
    """The unit of a date_trunc; raises QueryError."""
    unit = str(node.args["unit"].name).lower()
    if unit not in TIME_UNITS:
        raise QueryError(
            f"{clause}: date_trunc({unit[:40]!r}, …): expected one of {', '.join(TIME_UNITS)}"
        )
    return unit


def _bare_time(node: exp.Expr) -> exp.Expr:
    """Without the conversions that sqlglot puts around the argument."""
    while isinstance(node, exp.TsOrDsToDate | exp.TimeStrToTime):
        node = node.this
    return node


def _date(value: Expression, scope: Scope) -> Typed:
    return Call("date_format", (value, Literal("%Y-%m-%d"), Literal(scope.zone))), STRING


def _pattern(node: exp.Expr, clause: str) -> str:
    # Sqlglot's mark of two digits.
    pattern = re.sub(r"(%[mdHMS])strict", r"\1", str(node.args["format"].this))
    if re.fullmatch("(?:" + "|".join(DATE_PATTERN) + r"|[-/:. _T])+", pattern) is None:
        raise QueryError(
            f"{clause}: date_format: expected a pattern of yyyy MM dd HH mm ss and - / : . _, "
            "e.g. 'yyyy-MM-dd HH:mm'"
        )
    return pattern
