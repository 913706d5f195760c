"""The times of a JOIN of two streams in ON: how much earlier or later a partner may be. Pure.

It turns sqlglot's tree into `Within`.

    c.event_time BETWEEN o.event_time - INTERVAL 10 SECONDS AND o.event_time + INTERVAL 1 HOUR
    c.event_time >= o.event_time AND c.event_time < o.event_time + INTERVAL 5 MINUTES
    abs(c.event_time - o.event_time) <= INTERVAL 10 SECONDS

Each is a sum of the two times and of lengths, compared with another one; what is left of their
difference is a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from sqlglot import exp

from edgewake.cloud.queries.query import Within
from edgewake.cloud.queries.syntax.window_syntax import length_ms
from edgewake.cloud.queries.terms.expressions import TIMES, sql_of
from edgewake.protocol.errors import QueryError

WITHIN_MS_MAX: Final = 86_400_000
"""The longest time between the two readings, a day: their readings are kept as long."""
EXPECTED_TIME: Final = (
    "AND other.event_time BETWEEN stream.event_time - INTERVAL 10 SECONDS AND stream.event_time + "
    "INTERVAL 1 MINUTE"
)
_MIRRORED: Final[dict[type[exp.Expr], type[exp.Expr]]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}


def is_about_time(condition: exp.Expr) -> bool:
    """Does a condition of ON compare times?"""
    return any(column.name.rpartition(".")[2] in TIMES for column in condition.find_all(exp.Column))


def within(conditions: Iterable[exp.Expr], other: str) -> Within:
    """What all conditions about time say together.

    `other`: the joined stream. Raises QueryError.
    """
    earliest, latest = None, None
    for condition in conditions:
        for low, high in _bounds(condition, other):
            earliest = low if earliest is None or (low is not None and low > earliest) else earliest
            latest = high if latest is None or (high is not None and high < latest) else latest
    if earliest is None or latest is None:
        raise QueryError(
            f"JOIN {other}: streams are joined within a time, from both sides: {_expected(other)}"
        )
    if earliest > latest:
        raise QueryError(
            f"JOIN {other}: no reading of it is at least {earliest} ms and at most {latest} ms "
            "after another one"
        )
    if max(abs(earliest), abs(latest), latest - earliest) > WITHIN_MS_MAX:
        raise QueryError(f"JOIN {other}: readings of two streams may be at most a day apart")
    return Within(earliest, latest)


def _expected(other: str) -> str:
    return f"expected e.g. {EXPECTED_TIME.replace('other', other)}"


def _bounds(condition: exp.Expr, other: str) -> Iterator[tuple[int | None, int | None]]:
    """The least and the greatest ms by which a partner may be later."""
    if isinstance(condition, exp.Paren):
        yield from _bounds(condition.this, other)
    elif isinstance(condition, exp.Between):
        yield _bound(condition, exp.GTE, condition.this, condition.args["low"], other)
        yield _bound(condition, exp.LTE, condition.this, condition.args["high"], other)
    elif (
        type(condition) in _MIRRORED
        and isinstance(condition.this, exp.Abs)
        and not isinstance(condition, exp.GT | exp.GTE)
    ):
        inside, limit = condition.this.this, condition.expression
        yield _bound(condition, type(condition), inside, limit, other)
        yield _bound(condition, _MIRRORED[type(condition)], inside, exp.Neg(this=limit), other)
    elif type(condition) in _MIRRORED:
        yield _bound(condition, type(condition), condition.this, condition.expression, other)
    else:
        raise _refused(condition, other)


def _bound(
    condition: exp.Expr, compare: type[exp.Expr], left: exp.Expr, right: exp.Expr, other: str
) -> tuple[int | None, int | None]:
    one, two = _sum(left, condition, other), _sum(right, condition, other)
    # Ours * event_time + theirs * other.event_time + ms, against 0.
    ours, theirs, ms = (a - b for a, b in zip(one, two, strict=True))
    if sorted((ours, theirs)) != [-1, 1]:
        raise _refused(condition, other)
    compare = compare if theirs == 1 else _MIRRORED[compare]
    later = -ms * theirs
    strictly = 1 if compare in (exp.GT, exp.LT) else 0
    return (
        None if compare in (exp.LT, exp.LTE) else later + strictly,
        None if compare in (exp.GT, exp.GTE) else later - strictly,
    )


class _Sum(NamedTuple):
    """How many times an expression contains each of the two times, and the ms beside them."""

    ours: int
    theirs: int
    ms: int


def _sum(node: exp.Expr, condition: exp.Expr, other: str) -> _Sum:
    if isinstance(node, exp.Paren):
        return _sum(node.this, condition, other)
    if isinstance(node, exp.Column) and node.name in ("event_time", f"{other}.event_time"):
        return _Sum(int(node.name == "event_time"), int(node.name != "event_time"), 0)
    if isinstance(node, exp.Interval):
        return _Sum(0, 0, length_ms(node, "JOIN"))
    if isinstance(node, exp.Neg):
        return _Sum(*(-part for part in _sum(node.this, condition, other)))
    if isinstance(node, exp.Add | exp.Sub):
        sign = 1 if isinstance(node, exp.Add) else -1
        pairs = zip(
            _sum(node.this, condition, other), _sum(node.expression, condition, other), strict=True
        )
        return _Sum(*(a + sign * b for a, b in pairs))
    raise _refused(condition, other)


def _refused(condition: exp.Expr, other: str) -> QueryError:
    return QueryError(
        f"JOIN {other} ON {sql_of(condition)}: streams are joined within a time: {_expected(other)}"
    )
