"""Expressions over finished results, as Python functions. Pure.

They are HAVING, ORDER BY, and columns computed from aggregates.

The same functions as Spark's (plan/columns.py), with the same nulls: what has no value, or no
finite one, is None, and None goes through all but the functions that are there for it.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from edgewake.cloud.queries.terms.functions import (
    REGEX_SUBJECT_CHARS_MAX,
    TEXT_CHARS_MAX,
    like_pieces,
    like_regex,
)
from edgewake.cloud.queries.terms.tree import Call, Expression, Field, Literal

Row = Sequence[Any]
Evaluated = Callable[[Row], Any]


def evaluated(expression: Expression, places: Mapping[str, int]) -> Evaluated:
    """A function of a row. `places`: name → index in the row."""
    if isinstance(expression, Field):
        return operator.itemgetter(places[expression.name])
    if isinstance(expression, Literal):
        value = expression.value
        return lambda _: value
    return _call(expression, [evaluated(argument, places) for argument in expression.arguments])


def _call(call: Call, arguments: Sequence[Evaluated]) -> Evaluated:
    lazy = LAZY.get(call.function)
    if lazy is not None:
        return lazy(arguments)
    function = STRICT[call.function]

    def strict(row: Row) -> Any:
        values = [argument(row) for argument in arguments]
        if any(value is None for value in values):
            return None
        try:
            return _finite(function(*values))
        except (ArithmeticError, ValueError):
            return None

    return strict


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _case(arguments: Sequence[Evaluated]) -> Evaluated:
    *branches, default = arguments
    pairs = list(zip(branches[::2], branches[1::2], strict=True))

    def case(row: Row) -> Any:
        return next((value for condition, value in pairs if condition(row) is True), default)(row)

    return case


def _and(arguments: Sequence[Evaluated]) -> Evaluated:
    def both(row: Row) -> bool | None:
        values = [argument(row) for argument in arguments]
        if False in values:
            return False
        return None if None in values else True

    return both


def _or(arguments: Sequence[Evaluated]) -> Evaluated:
    def either(row: Row) -> bool | None:
        values = [argument(row) for argument in arguments]
        if True in values:
            return True
        return None if None in values else False

    return either


def _in(arguments: Sequence[Evaluated]) -> Evaluated:
    subject, *items = arguments

    def is_in(row: Row) -> bool | None:
        value, values = subject(row), [item(row) for item in items]
        if value is None:
            return None
        if value in [one for one in values if one is not None]:
            return True
        return None if None in values else False

    return is_in


def _between(arguments: Sequence[Evaluated]) -> Evaluated:
    subject, low, high = arguments
    return _and([_strict(operator.ge, subject, low), _strict(operator.le, subject, high)])


def _strict(compare: Callable[[Any, Any], bool], left: Evaluated, right: Evaluated) -> Evaluated:
    def compared(row: Row) -> bool | None:
        a, b = left(row), right(row)
        return None if a is None or b is None else compare(a, b)

    return compared


def _known(pick: Callable[[list[Any]], Any]) -> Callable[[Sequence[Evaluated]], Evaluated]:
    def make(arguments: Sequence[Evaluated]) -> Evaluated:
        def of_known(row: Row) -> Any:
            values = [argument(row) for argument in arguments]
            known = [value for value in values if value is not None]
            return pick(known) if known else None

        return of_known

    return make


LAZY: Final[Mapping[str, Callable[[Sequence[Evaluated]], Evaluated]]] = {
    "case": _case,
    "and": _and,
    "or": _or,
    "in": _in,
    "between": _between,
    "coalesce": _known(lambda values: values[0]),
    "least": _known(min),
    "greatest": _known(max),
    "is_null": lambda a: lambda row: a[0](row) is None,
    "<=>": lambda a: lambda row: a[0](row) == a[1](row),
}
"""Those that take None for a value."""


def _whole(number: int) -> float:
    """A whole number as Spark has it: of 64 bits."""
    return float(max(-(2**63), min(2**63 - 1, number)))


def _remainder(a: float, b: float) -> float:
    return math.fmod(a, b)


def rounded_half_up(number: float, digits: float) -> float:
    """As SQL rounds: 2.5 is 3 and -2.5 is -3, by the digits that the number is written with."""
    from decimal import ROUND_HALF_UP, Context, Decimal

    if abs(number) >= _WHOLE_FROM:
        return number
    unit = Decimal(1).scaleb(-int(digits))
    # A decimal of the default 28 digits raises for a number that has 13 and more before the point.
    context = Context(prec=_DIGITS_ROUNDED)
    # Adding 0.0 turns -0.0 into 0.0, which is what Spark gives.
    return 0.0 + float(Decimal(repr(float(number))).quantize(unit, ROUND_HALF_UP, context))


_WHOLE_FROM: Final = 2.0**53
"""Numbers from here on have nothing behind the point."""
_DIGITS_ROUNDED: Final = 40
"""More than the 16 digits of a number below `_WHOLE_FROM` and the 15 that `round` may keep."""


def number_text(value: float) -> str:
    """A number as text: a whole one without a point."""
    return (
        str(int(value)) if float(value).is_integer() and abs(value) < 2**63 else repr(float(value))
    )


_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))
"""What may stand around a number: the characters that Java trims, and no others of Unicode."""


def text_number(text: str) -> float | None:
    """A text as a number, None for any other text."""
    stripped = text.strip(_BLANKS)
    return float(stripped) if _NUMBER.fullmatch(stripped) else None


def _substring(text: str, start: float, length: float) -> str:
    begin = 0
    if start > 0:
        begin = int(start) - 1
    elif start < 0:
        begin = len(text) + int(start)
    return text[max(0, begin) : max(0, begin + int(length))]


def _split_part(text: str, delimiter: str, part: float) -> str | None:
    pieces = text.split(delimiter) if delimiter else [text]
    whole = int(part)
    if whole == 0:
        return None
    at = whole - 1 if whole > 0 else len(pieces) + whole
    return pieces[at] if 0 <= at < len(pieces) else ""


@lru_cache(maxsize=256)
def _like(pattern: str, *, ignore_case: bool) -> re.Pattern[str]:
    return re.compile(
        like_regex(like_pieces(pattern)), re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    )


def _rlike(text: str, pattern: str) -> bool:
    return len(text) <= REGEX_SUBJECT_CHARS_MAX and re.search(pattern, text, re.ASCII) is not None


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def local(ms: float, zone: str) -> datetime:
    """A time in ms as a local one."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(ms))).astimezone(
        _zone(zone)
    )


def begin_of(unit: str, at: datetime) -> datetime:
    """Where the unit of the calendar begins that a local time is in."""
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    if unit == "week":
        return midnight - timedelta(days=at.weekday())
    if unit == "quarter":
        return midnight.replace(day=1, month=at.month - (at.month - 1) % 3)
    if unit == "year":
        return midnight.replace(day=1, month=1)
    if unit == "month":
        return midnight.replace(day=1)
    if unit == "day":
        return midnight
    whole = at.replace(microsecond=0)
    if unit == "second":
        return whole
    return whole.replace(second=0) if unit == "minute" else whole.replace(second=0, minute=0)


def ms_of(at: datetime) -> int:
    """A local time in ms."""
    return int((at.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(milliseconds=1))


STRICT: Final[Mapping[str, Callable[..., Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": _remainder,
    "div": lambda a, b: _whole(math.trunc(a / b)),
    "pow": lambda a, b: None if isinstance(value := float(a) ** float(b), complex) else value,
    "log": lambda base, a: math.log(a) / math.log(base),
    "atan2": math.atan2,
    "hypot": math.hypot,
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "not": operator.not_,
    "negative": operator.neg,
    "abs": abs,
    "floor": lambda a: _whole(math.floor(a)),
    "ceil": lambda a: _whole(math.ceil(a)),
    "truncate": lambda a: _whole(math.trunc(a)),
    "sqrt": math.sqrt,
    "cbrt": math.cbrt,
    "ln": math.log,
    "exp": math.exp,
    "sign": lambda a: float((a > 0) - (a < 0)),
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "radians": math.radians,
    "degrees": math.degrees,
    "round": rounded_half_up,
    "lower": str.lower,
    "upper": str.upper,
    "trim": lambda a: a.strip(" "),
    "ltrim": lambda a: a.lstrip(" "),
    "rtrim": lambda a: a.rstrip(" "),
    "reverse": lambda a: a[::-1],
    "length": len,
    "concat": lambda *texts: "".join(texts)[:TEXT_CHARS_MAX],
    "substring": _substring,
    "left": lambda a, n: a[: max(0, int(n))],
    "right": lambda a, n: a[max(0, len(a) - int(n)) :] if n > 0 else "",
    "replace": lambda a, old, new: (a.replace(old, new) if old else a)[:TEXT_CHARS_MAX],
    "split_part": _split_part,
    "instr": lambda a, part: a.find(part) + 1,
    "like": lambda a, pattern: _like(pattern, ignore_case=False).fullmatch(a) is not None,
    "ilike": lambda a, pattern: _like(pattern, ignore_case=True).fullmatch(a) is not None,
    "rlike": _rlike,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": operator.contains,
    "text_number": text_number,
    "number_text": number_text,
    "boolean_text": lambda a: "true" if a else "false",
    "unix_millis": lambda t: t,
    "unix_seconds": lambda t: math.floor(t / 1000),
    "year": lambda t, zone: local(t, zone).year,
    "quarter": lambda t, zone: (local(t, zone).month + 2) // 3,
    "month": lambda t, zone: local(t, zone).month,
    "day": lambda t, zone: local(t, zone).day,
    "dayofweek": lambda t, zone: local(t, zone).isoweekday() % 7 + 1,
    "weekday": lambda t, zone: local(t, zone).weekday(),
    "dayofyear": lambda t, zone: local(t, zone).timetuple().tm_yday,
    "weekofyear": lambda t, zone: local(t, zone).isocalendar().week,
    "hour": lambda t, zone: local(t, zone).hour,
    "minute": lambda t, zone: local(t, zone).minute,
    "second": lambda t, zone: local(t, zone).second,
    "date_format": lambda t, pattern, zone: local(t, zone).strftime(pattern),
    "date_trunc": lambda t, unit, zone: ms_of(begin_of(unit, local(t, zone))),
}
"""Those that give None where an argument is None."""
