"""The plan for java/edgewake/Results.java, with which Spark's tasks make keys and texts of results.

Pure. It covers most queries: those whose result is one row with aggregates as its values. The
driver makes the others (finish.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from edgewake.cloud.queries.query import NUMBERS_PER_TAG, Aggregate, Query, Registered
from edgewake.cloud.queries.terms.tree import Field

KEY: Final = "result_key"
TEXT: Final = "result_text"
"""The text without its end: revision, finality and the brace."""
KEPT: Final = ("query", "window_start", "window_end")
"""Other columns of such a row that the driver needs."""
_WHOLE, _SUM, _DOUBLE, _MEAN = range(4)
_KINDS: Final = {"count": _WHOLE, "sum": _SUM, "min": _DOUBLE, "max": _DOUBLE}


def plain_aggregates(query: Query) -> list[Aggregate] | None:
    """The aggregates that the outputs are, where they are nothing else and all rows are emitted."""
    by_name = {aggregate.name: aggregate for aggregate in query.aggregates}
    found = [
        by_name.get(output.expression.name)
        for output in query.outputs
        if isinstance(output.expression, Field)
    ]
    known = [aggregate for aggregate in found if aggregate is not None]
    is_plain = query.having is None and query.limit is None and len(known) == len(query.outputs)
    return known if is_plain else None


def head_of(query: Query) -> str:
    """The beginning of all results of a query."""
    return f'{{"query":"{query.name}"'


def name_of(output: str) -> str:
    """The text before a value."""
    return f',"{output}":'


def columns(queries: Sequence[Registered], names: Sequence[str]) -> tuple[str, ...]:
    """The columns of a row with texts, out of `names`: few where all queries have texts."""
    return (
        *(names if any(_values(one.query, names) is None for one in queries) else KEPT),
        KEY,
        TEXT,
    )


def plan(queries: Sequence[Registered], names: Sequence[str]) -> str | None:
    """Tell Results.java what rows (partials.estimate) with these columns become.

    None: no query has texts.
    """
    values_of = [(one, _values(one.query, names)) for one in queries]
    made = [(one, values) for one, values in values_of if values is not None]
    if not made:
        return None
    places = {column: names.index(column) for column in (*KEPT, "key")}
    each = [{"id": one.id, "head": head_of(one.query), "values": values} for one, values in made]
    return orjson.dumps({**places, "is_whole": len(made) < len(queries), "queries": each}).decode()


def _values(query: Query, names: Sequence[str]) -> list[dict[str, Any]] | None:
    aggregates = plain_aggregates(query)
    if aggregates is None or query.parts > 1 or query.shed is not None:
        return None
    found = [_value(aggregate, names) for aggregate in aggregates]
    known = [value for value in found if value is not None]
    named = [
        {"name": name_of(output.name), **value}
        for output, value in zip(query.outputs, known, strict=False)
    ]
    return named if len(known) == len(found) else None


def _value(aggregate: Aggregate, names: Sequence[str]) -> dict[str, int] | None:
    """The column that it is made of, and its type."""
    function, i = aggregate.function, aggregate.slot % NUMBERS_PER_TAG
    count = names.index(f"count_{i}")
    if function in ("distinct", "variance"):
        return {
            "kind": _SUM if function == "variance" else _WHOLE,
            "column": names.index(function),
            "count": count,
        }
    if function == "count_all":
        return {"kind": _WHOLE, "column": names.index("readings"), "count": count}
    if function == "avg":
        return {"kind": _MEAN, "column": names.index(f"sum_{i}"), "count": count}
    return (
        {"kind": _KINDS[function], "column": names.index(f"{function}_{i}"), "count": count}
        if function in _KINDS
        else None
    )
