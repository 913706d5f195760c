"""Several streams of one shape in one query. Pure.

`FROM (SELECT * FROM vans UNION ALL SELECT * FROM trucks)`.

It reads the readings of all of them as if they were one stream's. Fields of one name are of one
type; a field that a stream does not have is null there, as it is in a reading without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlglot import exp

from edgewake.cloud.queries.terms.faults import Faults
from edgewake.cloud.queries.terms.functions import Kind
from edgewake.protocol.errors import QueryError

STREAMS_MAX: Final = 8
"""Streams of a query; the furthest back of them holds event time up for all."""
_OTHERS: Final = "others"
EXPECTED: Final = "FROM (SELECT * FROM vans UNION ALL SELECT * FROM trucks)"


def unite(select: exp.Select, faults: Faults) -> None:
    """Put the first stream in the place of a UNION ALL in FROM, and note the others (others_of)."""
    source: Any = select.args.get("from_")
    table: Any = None if source is None else source.this
    union = _union(select, table)
    if union is None:
        return
    # Depth first: of three streams and more the last one lies least deep.
    first: Any = union.find(exp.Table, bfs=False)
    if first is not None:  # also where it is refused, so that one fault is told of it
        first = first.copy()
        source.set("this", first)
    with faults.within(union):
        tables = list(_tables(union))
        names = [one.name for one in tables]
        if len(tables) > STREAMS_MAX:
            raise QueryError(f"UNION ALL: {len(tables)} streams: expected at most {STREAMS_MAX}")
        if twice := {name for name in names if names.count(name) > 1}:
            raise QueryError(
                f"UNION ALL: {min(twice)!r} twice: each of its readings would count twice"
            )
        if table.alias_or_name:
            first.set("alias", exp.TableAlias(this=exp.to_identifier(table.alias_or_name)))
        if table.args.get("pivots"):
            first.set("pivots", table.args["pivots"])
        select.meta[_OTHERS] = tuple(tables[1:])


def others_of(select: exp.Expr) -> tuple[exp.Table, ...]:
    """The streams after the first one."""
    return tuple(select.meta.get(_OTHERS, ()))


def agreed(
    name: str, types: Mapping[str, Kind], other: str, others: Mapping[str, Kind]
) -> Mapping[str, Kind]:
    """The fields of both. Raises QueryError where one name has two types."""
    for field in sorted(types.keys() & others.keys()):
        if types[field] != others[field]:
            raise QueryError(
                f"UNION ALL: {field} is a {types[field]} in {name} and a {others[field]} in "
                f"{other}; register a query for each, and follow all: edgewake tail NAME_1 "
                "NAME_2"
            )
    return {**types, **others}


def _union(select: exp.Select, table: Any) -> exp.SetOperation | None:
    if isinstance(table, exp.Subquery) and isinstance(table.this, exp.SetOperation):
        return table.this
    common: Any = select.args.get("with_")
    for one in [] if common is None or not isinstance(table, exp.Table) else common.expressions:
        if one.alias == table.name and isinstance(one.this, exp.SetOperation):
            left = [other for other in common.expressions if other is not one]
            select.set("with_", exp.With(expressions=left) if left else None)
            found: exp.SetOperation = one.this
            return found
    return None


def _tables(node: exp.Expr | None) -> Iterator[exp.Table]:
    while isinstance(node, exp.Subquery):
        node = node.this
    if isinstance(node, exp.SetOperation):
        if not isinstance(node, exp.Union) or node.args.get("distinct"):
            raise QueryError(
                "UNION ALL: only that; UNION, EXCEPT and INTERSECT compare readings, and each is "
                "another one"
            )
        yield from _tables(node.this)
        yield from _tables(node.expression)
        return
    parts = (
        {}
        if not isinstance(node, exp.Select)
        else {name: value for name, value in node.args.items() if value}
    )
    table = parts["from_"].this if "from_" in parts else None
    is_whole = set(parts) == {"expressions", "from_"} and [
        type(one) for one in parts["expressions"]
    ] == [exp.Star]
    if (
        not is_whole
        or not isinstance(table, exp.Table)
        or {name for name, value in table.args.items() if value} - {"this", "alias"}
    ):
        raise QueryError(f"UNION ALL: expected whole streams, {EXPECTED}, and WHERE outside of it")
    yield table
