"""Tells whose values a query's columns have, so that they have the units of those fields. Pure.

A column that is a field unchanged, or a minimum, maximum, mean, sum, quantile or the like of one
field, has that field's unit; what rounds it keeps it. What is counted or computed otherwise has
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edgewake.cloud.queries.query import Aggregate, Query
from edgewake.cloud.queries.terms.expressions import TIMES
from edgewake.cloud.queries.terms.tree import Call, Expression, Field, Literal

Source = tuple[str, str]
"""A stream and one of its fields."""
Sources = frozenset[Source]

KEEPS_UNIT: Final = frozenset({"abs", "ceil", "floor", "negative", "round", "truncate"})
"""Functions whose result has the unit of their first argument."""
CHOOSES: Final = frozenset({"coalesce", "greatest", "least"})
"""Functions whose result is one of their arguments."""
NOTHING: Final[Sources] = frozenset()
_NOT_FIELDS: Final = frozenset({"device", *TIMES.values()})


def measures(query: Query) -> Mapping[str, tuple[str, ...]]:
    """Column → the fields, as `stream.field`, whose values it has; others are left out.

    Several fields: of a union, an UNPIVOT, or of what chooses between them.
    """
    columns = {key.name: _of_reading(query, key.expression) for key in query.keys}
    for output in query.outputs:
        columns[output.name] = _of_result(query, output.expression, columns)
    return {
        name: tuple(sorted(f"{stream}.{field}" for stream, field in found))
        for name, found in columns.items()
        if found
    }


def _of_result(query: Query, one: Expression, keys: Mapping[str, Sources]) -> Sources:
    """The fields of an expression over aggregates and keys, or over a reading's fields."""
    if not query.aggregates:
        return _of_reading(query, one)
    if isinstance(one, Field):
        known = next((each for each in query.aggregates if each.name == one.name), None)
        return keys.get(one.name, NOTHING) if known is None else _of_aggregate(query, known)
    if isinstance(one, Call) and one.function in KEEPS_UNIT:
        return _of_result(query, one.arguments[0], keys)
    return NOTHING


def _of_aggregate(query: Query, one: Aggregate) -> Sources:
    match one.function:
        case "sum" | "avg" | "min" | "max":
            return _of_reading(query, query.numbers[one.slot])
        case "quantile" | "quantiles":
            return _of_reading(query, query.quantiles[one.slot])
        case "most" | "least":
            return _of_reading(query, query.extremes[one.slot].value)
        case "mode":
            return _of_reading(query, query.tops[one.slot][0])
    return NOTHING


def _of_reading(query: Query, one: Expression) -> Sources:
    """The fields of an expression over a reading; none where one of its parts has none."""
    if isinstance(one, Field):
        return _of_name(query, one.name)
    if not isinstance(one, Call):
        return NOTHING
    if one.function in KEEPS_UNIT:
        return _of_reading(query, one.arguments[0])
    if one.function == "case":  # condition, value, …, default
        return _of_any(query, (*one.arguments[1:-1:2], one.arguments[-1]))
    return _of_any(query, one.arguments) if one.function in CHOOSES else NOTHING


def _of_any(query: Query, choices: tuple[Expression, ...]) -> Sources:
    """The fields of one of several values; NULL has every unit."""
    found = [_of_reading(query, each) for each in choices if each != Literal(None)]
    return frozenset().union(*found) if all(found) else NOTHING


def _of_name(query: Query, name: str) -> Sources:
    if name in _NOT_FIELDS:
        return NOTHING
    table, point, column = name.partition(".")
    if not point:
        unpivot = query.unpivot
        if unpivot is not None and name == unpivot.metric:
            return NOTHING
        fields = unpivot.fields if unpivot is not None and name == unpivot.value else (name,)
        return frozenset(
            (each, field) for each in (query.stream, *query.others) for field in fields
        )
    if table:
        is_foreign = query.join is None or bool(query.join.foreign)
        return NOTHING if is_foreign else frozenset({(table, column)})
    call = query.history[int(column)]
    is_value = call.past.function == "seasonal_baseline"
    return _of_reading(query, call.expression) if is_value else NOTHING
