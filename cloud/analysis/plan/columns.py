"""Spark columns from checked expressions.

The only door from a query file to Spark; no text of a user passes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the name every reader of Spark knows)

from edgewake.cloud.queries.terms.functions import (
    DATE_PATTERN,
    REGEX_SUBJECT_CHARS_MAX,
    TEXT_CHARS_MAX,
    Kind,
    like_pieces,
    like_regex,
)
from edgewake.cloud.queries.terms.tree import Call, Expression, Field, Literal
from edgewake.protocol.frames.field_type import FieldType

Resolve = Callable[[str], Column]
"""Gives the column of a name; for lambdas over a frame's readings it is another one than for
rows."""


def column(expression: Expression, resolve: Resolve) -> Column:
    """The expression as a column."""
    if isinstance(expression, Field):
        return resolve(expression.name)
    if isinstance(expression, Literal):
        return F.lit(expression.value)
    return _call(expression, resolve)


def _call(call: Call, resolve: Resolve) -> Column:
    if call.function in _TAKE_TEXT:
        subject, *others = call.arguments
        constants = [
            other.value if isinstance(other, Literal) else column(other, resolve)
            for other in others
        ]
        return _TAKE_TEXT[call.function]([column(subject, resolve), *constants])
    return _FUNCTIONS[call.function]([column(argument, resolve) for argument in call.arguments])


def _case(arguments: Sequence[Column]) -> Column:
    *branches, default = arguments
    pairs = zip(branches[::2], branches[1::2], strict=True)
    first, *others = [(condition, value) for condition, value in pairs]
    return reduce(lambda built, pair: built.when(*pair), others, F.when(*first)).otherwise(default)


def _text_number(text: Column) -> Column:
    # Java also reads `1d`, `2f` and `0x1p3`, which are numbers to no other SQL, nor over results.
    return _finite(F.when(~text.rlike("[dDfFxX]"), text.try_cast("double")))


def _truncated(value: Column) -> Column:
    return value.cast("bigint").cast("double")


def _finite(value: Column) -> Column:
    """Null for NaN and the infinities, as for every missing value.

    One of them would spoil a whole window's aggregates.
    """
    # The rest of a division by infinity is the number itself, and NaN of an infinity. `value`
    # stands here once: a sum of a dozen terms in which it stood three times was a plan of a million
    # parts.
    return F.nanvl(value % F.lit(math.inf), F.lit(None).cast("double"))


def _bounded(text: Column) -> Column:
    return F.substring(text, 1, TEXT_CHARS_MAX)


def _like(text: Column, pattern: str, *, ignore_case: bool) -> Column:
    pieces = like_pieces(pattern.lower() if ignore_case else pattern)
    # Nothing to go back for, and mostly no regex either.
    if "%%" not in pattern and (len(pieces) <= 2 or pieces == ["", pieces[1], ""]):
        return text.ilike(pattern) if ignore_case else text.like(pattern)
    return (F.lower(text) if ignore_case else text).rlike(f"^(?s:{like_regex(pieces)})\\z")


def _rlike(text: Column, pattern: str) -> Column:
    return F.when(F.length(text) > REGEX_SUBJECT_CHARS_MAX, F.lit(False)).otherwise(
        text.rlike(pattern)
    )


def _java_pattern(pattern: str) -> str:
    for directive, letters in DATE_PATTERN.items():
        pattern = pattern.replace(directive, letters)
    return pattern.replace("T", "'T'").replace("_", "'_'")


def _split_part(text: Column, delimiter: Column, part: Column) -> Column:
    whole = part.cast("int")
    return F.split_part(text, delimiter, F.when(whole != 0, whole))


def local(ms: Column, zone: str) -> Column:
    """A time in ms as a timestamp that shows the zone's wall clock (the session's zone is UTC)."""
    at = F.timestamp_millis(ms.cast("bigint"))
    return at if zone == "UTC" else F.from_utc_timestamp(at, zone)


def ms_of(at: Column, zone: str) -> Column:
    """The reverse of `local`."""
    return F.unix_millis(at if zone == "UTC" else F.to_utc_timestamp(at, zone))


def _time_part(part: Callable[[Column], Column]) -> Callable[[Sequence[Any]], Column]:
    return lambda a: part(local(a[0], a[1])).cast("double")


_TAKE_TEXT: Final[Mapping[str, Callable[[Sequence[Any]], Column]]] = {
    "like": lambda a: _like(a[0], a[1], ignore_case=False),
    "ilike": lambda a: _like(a[0], a[1], ignore_case=True),
    "rlike": lambda a: _rlike(a[0], a[1]),
    **{
        name: _time_part(part)
        for name, part in {
            "year": F.year,
            "quarter": F.quarter,
            "month": F.month,
            "day": F.dayofmonth,
            "dayofweek": F.dayofweek,
            "weekday": F.weekday,
            "dayofyear": F.dayofyear,
            "weekofyear": F.weekofyear,
            "hour": F.hour,
            "minute": F.minute,
            "second": F.second,
        }.items()
    },
    "date_format": lambda a: F.date_format(local(a[0], a[2]), _java_pattern(a[1])),
    "date_trunc": lambda a: ms_of(F.date_trunc(a[1], local(a[0], a[2])), a[2]),
}
"""Functions that take a constant, already checked, as text: Spark has no other way for them."""

_FUNCTIONS: Final[Mapping[str, Callable[[Sequence[Column]], Column]]] = {
    "+": lambda a: _finite(a[0] + a[1]),
    "-": lambda a: _finite(a[0] - a[1]),
    "*": lambda a: _finite(a[0] * a[1]),
    "/": lambda a: _finite(a[0] / a[1]),
    "%": lambda a: _finite(a[0] % a[1]),
    "div": lambda a: _truncated(_finite(a[0] / a[1])),
    "=": lambda a: a[0] == a[1],
    "<>": lambda a: a[0] != a[1],
    "<": lambda a: a[0] < a[1],
    "<=": lambda a: a[0] <= a[1],
    ">": lambda a: a[0] > a[1],
    ">=": lambda a: a[0] >= a[1],
    "<=>": lambda a: a[0].eqNullSafe(a[1]),
    "and": lambda a: a[0] & a[1],
    "or": lambda a: a[0] | a[1],
    "not": lambda a: ~a[0],
    "negative": lambda a: -a[0],
    "abs": lambda a: F.abs(a[0]),
    "floor": lambda a: F.floor(a[0]),
    "ceil": lambda a: F.ceil(a[0]),
    "truncate": lambda a: _truncated(a[0]),
    "sqrt": lambda a: _finite(F.sqrt(a[0])),
    "cbrt": lambda a: F.cbrt(a[0]),
    "ln": lambda a: _finite(F.ln(a[0])),
    "log": lambda a: _finite(F.ln(a[1]) / F.ln(a[0])),
    "exp": lambda a: _finite(F.exp(a[0])),
    "pow": lambda a: _finite(F.pow(a[0], a[1])),
    "sign": lambda a: F.signum(a[0]),
    "sin": lambda a: F.sin(a[0]),
    "cos": lambda a: F.cos(a[0]),
    "tan": lambda a: _finite(F.tan(a[0])),
    "asin": lambda a: _finite(F.asin(a[0])),
    "acos": lambda a: _finite(F.acos(a[0])),
    "atan": lambda a: F.atan(a[0]),
    "atan2": lambda a: F.atan2(a[0], a[1]),
    "hypot": lambda a: _finite(F.hypot(a[0], a[1])),
    "radians": lambda a: F.radians(a[0]),
    "degrees": lambda a: _finite(F.degrees(a[0])),
    "round": lambda a: F.round(a[0], a[1].cast("int")),
    "lower": lambda a: F.lower(a[0]),
    "upper": lambda a: F.upper(a[0]),
    "trim": lambda a: F.trim(a[0]),
    "ltrim": lambda a: F.ltrim(a[0]),
    "rtrim": lambda a: F.rtrim(a[0]),
    "reverse": lambda a: F.reverse(a[0]),
    "length": lambda a: F.length(a[0]),
    "concat": lambda a: _bounded(F.concat(*a)),
    "substring": lambda a: F.substring(a[0], a[1].cast("int"), a[2].cast("int")),
    "left": lambda a: F.left(a[0], a[1].cast("int")),
    "right": lambda a: F.right(a[0], a[1].cast("int")),
    "replace": lambda a: _bounded(F.replace(a[0], a[1], a[2])),
    "split_part": lambda a: _split_part(a[0], a[1], a[2]),
    "instr": lambda a: F.position(a[1], a[0]),
    "startswith": lambda a: F.startswith(a[0], a[1]),
    "endswith": lambda a: F.endswith(a[0], a[1]),
    "contains": lambda a: F.contains(a[0], a[1]),
    "text_number": lambda a: _text_number(a[0]),
    "number_text": lambda a: as_text(a[0], FieldType.NUMBER),
    "boolean_text": lambda a: a[0].cast("string"),
    "unix_millis": lambda a: a[0],
    "unix_seconds": lambda a: F.floor(a[0] / 1000),
    "least": lambda a: F.least(*a) if len(a) > 1 else a[0],
    "greatest": lambda a: F.greatest(*a) if len(a) > 1 else a[0],
    "coalesce": lambda a: F.coalesce(*a),
    "is_null": lambda a: a[0].isNull(),
    "in": lambda a: a[0].isin(*a[1:]),
    "between": lambda a: a[0].between(a[1], a[2]),
    "case": _case,
}


NAMES: Final = frozenset({*_TAKE_TEXT, *_FUNCTIONS})
"""Every function that there is a column for."""

ITEM_BYTES_MAX: Final = 256
"""Bytes of a text that a sketch counts. A sketch keeps hundreds of them, so longer ones would make
results that no record can hold."""
ITEM_CHARS_KEPT: Final = 48
"""Characters that remain of a longer one, before `…` and a hash of the whole: at most 192 bytes."""


def as_text(value: Column, kind: Kind) -> Column:
    """Return a value as sketches count it: its text.

    A number is written as other languages write it, a whole one without a point. A text of more
    than ITEM_BYTES_MAX becomes its beginning, `…` and 16 hex digits of its xxhash64, so that
    different texts stay different.
    """
    if kind is FieldType.STRING:
        short = F.concat(
            F.substring(value, 1, ITEM_CHARS_KEPT),
            F.lit("…"),
            F.lower(F.lpad(F.hex(F.xxhash64(value)), 16, "0")),
        )
        return F.when(F.octet_length(value) > ITEM_BYTES_MAX, short).otherwise(value)
    if kind is FieldType.BOOLEAN:
        return value.cast("string")
    whole = value.cast("bigint")
    return F.when(value == whole, whole.cast("string")).otherwise(_shortest(value))


def _shortest(value: Column) -> Column:
    """Write a double as Python's `repr` and most languages do: with the fewest digits possible.

    The exponent appears below 1e-4 and from 1e16 on. Java's text has an exponent below 1e-3 and
    from 1e7 on, and writes it in another way.
    """
    java = value.cast("string")
    plain = F.regexp_replace(java.cast("decimal(38,21)").cast("string"), "0+$", "")
    small = F.regexp_replace(F.regexp_replace(java, r"(\.0)?E-(\d)$", "e-0$2"), r"(\.0)?E-", "e-")
    scientific = F.regexp_replace(small, r"(\.0)?E", "e+")
    size = F.abs(value)
    return (
        F.when(~java.contains("E"), java)
        .when((size >= 1e-4) & (size < 1e16), plain)
        .otherwise(scientific)
    )
