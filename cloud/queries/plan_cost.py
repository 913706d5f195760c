"""What Spark has to plan for a query: how many functions, names and constants its columns have.

Pure.

Spark's time and memory to plan, optimise and compile a batch grow with it, and all queries of a
stream and kind are one plan. So a query that has more than PLAN_MAX is refused when it is checked,
and the youngest queries of a stream when all together have more than STREAM_PLAN_MAX: what is
accepted starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from edgewake.cloud.queries.query import NUMBERS_PER_TAG, Query
from edgewake.cloud.queries.terms.tree import Expression, size_of
from edgewake.protocol.errors import QueryError

PLAN_MAX: Final = 20_000
"""The most expressions of one query's plan. Measured on two cores: Spark plans and compiles some
5,000 a second."""
STREAM_PLAN_MAX: Final = 60_000
"""The most expressions of all queries of a stream, so that a lane starts within a minute, which is
a third of what the analysis may be silent."""

TAG: Final = 40
"""What a tag has beside the query's own expressions: its window, its place, when it is forgotten
(plan/tags.py)."""
NUMBER: Final = 5
"""The number of times that a tag holds the expression of a number: with the sums of frames once for
each of count, sum, least and most, and in a test."""
OTHERS: Final = {"moment": 1, "order": 2, "value": 2, "distinct": 2, "quantile": 1, "top": 9}
"""The number of times that a tag holds other expressions."""


def plan_cost(query: Query) -> int:
    """Functions, names and constants that Spark plans for the query.

    What the driver computes of each row is among them.
    """
    of_each = tags(query) * (TAG + _sum([query.where])) + _fields(query) * (
        query.window.hops * _slots(query) + _keys(query)
    )
    others = [
        query.where_after,
        query.having,
        *query.conditions,
        *(call.expression for call in query.history),
    ]
    others += [output.expression for output in query.outputs] + [
        order.expression for order in query.order
    ]
    return of_each + _sum(others)


def tags(query: Query) -> int:
    """Rows that one reading becomes: windows x fields of an UNPIVOT x parts."""
    return query.window.hops * _fields(query) * query.parts


def check_plan(query: Query) -> None:
    """Raises QueryError where Spark would plan for too long."""
    cost = plan_cost(query)
    if cost <= PLAN_MAX:
        return
    rows = tags(query)
    what = (
        f"each reading becomes {rows} rows ({query.window.hops} windows x {_fields(query)} fields "
        f"x {query.parts} parts of"
        f" {NUMBERS_PER_TAG} aggregates); use a longer slide, fewer fields or fewer aggregates"
        if rows > 1
        else "its expressions are too many or too large; register several queries, each with a "
        "part of the columns"
    )
    raise QueryError(
        f"SELECT: Spark would plan {cost} functions, names and constants, more than {PLAN_MAX}, "
        f"the most of one query: {what}"
    )


def _fields(query: Query) -> int:
    return 1 if query.unpivot is None else len(query.unpivot.fields)


def _keys(query: Query) -> int:
    return _sum(key.expression for key in query.keys)


def _slots(query: Query) -> int:
    extremes = OTHERS["order"] * _sum(one.order for one in query.extremes) + OTHERS["value"] * _sum(
        one.value for one in query.extremes
    )
    return (
        NUMBER * _sum(query.numbers)
        + OTHERS["moment"] * _sum(query.moments)
        + extremes
        + OTHERS["distinct"] * _sum(expression for expression, _ in query.distinct)
        + OTHERS["quantile"] * _sum(query.quantiles)
        + OTHERS["top"] * _sum(expression for expression, _ in query.tops)
    )


def _sum(expressions: Iterable[Expression | None]) -> int:
    return sum(size_of(one) for one in expressions if one is not None)
