"""Spark columns from checked expressions. The only door from a query file to Spark; no text of a user passes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every reader of Spark knows)

from edgewake.cloud.analysis.expressions import Call, Expression, Field, Kind, Literal
from edgewake.protocol.stream import FieldType

Resolve = Callable[[str], Column]
"""Gives the column of a name; for lambdas over a frame's readings it is another one than for rows."""


def column(expression: Expression, resolve: Resolve) -> Column:
    """The expression as a column."""
    if isinstance(expression, Field):
        return resolve(expression.name)
    if isinstance(expression, Literal):
        return F.lit(expression.value)
    return _call(expression, resolve)


def _call(call: Call, resolve: Resolve) -> Column:
    if call.function == "like":  # Spark's LIKE takes its pattern as text
        subject, pattern = call.arguments
        if isinstance(pattern, Literal):
            return column(subject, resolve).like(str(pattern.value))
    return _FUNCTIONS[call.function]([column(argument, resolve) for argument in call.arguments])


def _case(arguments: Sequence[Column]) -> Column:
    *branches, default = arguments
    pairs = zip(branches[::2], branches[1::2], strict=True)
    first, *others = [(condition, value) for condition, value in pairs]
    return reduce(lambda built, pair: built.when(*pair), others, F.when(*first)).otherwise(default)


def _finite(value: Column) -> Column:
    """Null for NaN and the infinities, as for every other value that there is not: one of them would spoil a whole window's aggregates."""
    return F.when(value - value == 0, value)


_FUNCTIONS: Final[Mapping[str, Callable[[Sequence[Column]], Column]]] = {
    "+": lambda a: _finite(a[0] + a[1]),
    "-": lambda a: _finite(a[0] - a[1]),
    "*": lambda a: _finite(a[0] * a[1]),
    "/": lambda a: _finite(a[0] / a[1]),
    "%": lambda a: _finite(a[0] % a[1]),
    "=": lambda a: a[0] == a[1],
    "<>": lambda a: a[0] != a[1],
    "<": lambda a: a[0] < a[1],
    "<=": lambda a: a[0] <= a[1],
    ">": lambda a: a[0] > a[1],
    ">=": lambda a: a[0] >= a[1],
    "and": lambda a: a[0] & a[1],
    "or": lambda a: a[0] | a[1],
    "not": lambda a: ~a[0],
    "negative": lambda a: -a[0],
    "abs": lambda a: F.abs(a[0]),
    "floor": lambda a: F.floor(a[0]),
    "ceil": lambda a: F.ceil(a[0]),
    "sqrt": lambda a: _finite(F.sqrt(a[0])),
    "ln": lambda a: _finite(F.ln(a[0])),
    "exp": lambda a: _finite(F.exp(a[0])),
    "pow": lambda a: _finite(F.pow(a[0], a[1])),
    "round": lambda a: F.round(a[0], a[1].cast("int")),
    "lower": lambda a: F.lower(a[0]),
    "upper": lambda a: F.upper(a[0]),
    "trim": lambda a: F.trim(a[0]),
    "length": lambda a: F.length(a[0]),
    "like": lambda a: F.like(a[0], a[1]),
    "least": lambda a: F.least(*a) if len(a) > 1 else a[0],
    "greatest": lambda a: F.greatest(*a) if len(a) > 1 else a[0],
    "coalesce": lambda a: F.coalesce(*a),
    "is_null": lambda a: a[0].isNull(),
    "in": lambda a: a[0].isin(*a[1:]),
    "between": lambda a: a[0].between(a[1], a[2]),
    "case": _case,
}


ITEM_BYTES_MAX: Final = 256
"""Bytes of a text that a sketch counts. A sketch keeps hundreds of them, so longer ones would make results that no record can hold."""
ITEM_CHARS_KEPT: Final = 48
"""Characters that remain of a longer one, before `…` and a hash of the whole: at most 192 bytes."""


def as_text(value: Column, kind: Kind) -> Column:
    """A value as sketches count it: its text; a number as other languages write it, a whole one without a point.

    A text of more than ITEM_BYTES_MAX becomes its beginning, `…` and 16 hex digits of its xxhash64, so that different ones stay different.
    """
    if kind is FieldType.STRING:
        short = F.concat(F.substring(value, 1, ITEM_CHARS_KEPT), F.lit("…"), F.lower(F.lpad(F.hex(F.xxhash64(value)), 16, "0")))
        return F.when(F.octet_length(value) > ITEM_BYTES_MAX, short).otherwise(value)
    if kind is FieldType.BOOLEAN:
        return value.cast("string")
    whole = value.cast("bigint")
    return F.when(value == whole, whole.cast("string")).otherwise(_shortest(value))


def _shortest(value: Column) -> Column:
    """A double as Python's `repr` and most languages write it: the fewest digits that tell it, an exponent below 1e-4 and from 1e16 on.

    Java's text has an exponent below 1e-3 and from 1e7 on, and writes it in another way.
    """
    java = value.cast("string")
    plain = F.regexp_replace(java.cast("decimal(38,21)").cast("string"), "0+$", "")
    small = F.regexp_replace(F.regexp_replace(java, r"(\.0)?E-(\d)$", "e-0$2"), r"(\.0)?E-", "e-")
    scientific = F.regexp_replace(small, r"(\.0)?E", "e+")
    size = F.abs(value)
    return F.when(~java.contains("E"), java).when((size >= 1e-4) & (size < 1e16), plain).otherwise(scientific)
