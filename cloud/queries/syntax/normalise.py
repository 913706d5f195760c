"""Brings the SELECT of a query file into one form, where it can be written in several. Pure.

- A common table or a subquery in FROM that only filters (`SELECT * FROM s WHERE …`) becomes a WHERE
  of the query.
- `v.speed` becomes `speed` where v is the table's name or alias; `window.start` becomes
  `window_start`.
- A UNION ALL of whole streams in FROM becomes its first stream (union.py).
- A number in GROUP BY or ORDER BY becomes the column of SELECT that it counts.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from edgewake.cloud.queries.syntax.join import qualified
from edgewake.cloud.queries.syntax.union import unite
from edgewake.cloud.queries.terms.faults import Faults
from edgewake.protocol.errors import QueryError

_WINDOW_PARTS: Final = {"start": "window_start", "end": "window_end"}
NESTED_MAX: Final = 8
"""Filters within filters."""


def shaped(select: exp.Select, faults: Faults) -> exp.Select:
    """Rewrite a SELECT to read one plain table; adds a fault for what cannot be rewritten."""
    names: set[str] = set()
    for _ in range(NESTED_MAX):
        inner = _filter_in_from(select)
        if inner is None:
            break
        with faults.within(inner):
            select = _merged(select, inner, names)
    unite(select, faults)
    table = _table(select)
    if isinstance(table, exp.Table):
        names |= {table.name, table.alias}
        if table.args.get("alias") is not None and not table.args["alias"].args.get("columns"):
            table.set("alias", None)
    _unqualify(select, names - {""})
    qualified(select)
    with faults.within(select.args.get("group")):
        _count_columns(select)
    return select


def _table(select: exp.Expr) -> exp.Expr | None:
    source = select.args.get("from_")
    found: exp.Expr | None = None if source is None else source.this
    return found


def _filter_in_from(select: exp.Select) -> exp.Expr | None:
    """The SELECT that FROM names or holds."""
    table = _table(select)
    if isinstance(table, exp.Subquery) and isinstance(table.this, exp.Select):
        return table.this
    if isinstance(table, exp.Table) and not table.args.get("db"):
        common = select.args.get("with_")
        for one in common.expressions if common is not None else []:
            if one.alias == table.name and isinstance(one.this, exp.Select):
                found: exp.Expr = one.this
                return found
    return None


def _merged(select: exp.Select, inner: exp.Expr, names: set[str]) -> exp.Select:
    parts = {name for name, value in inner.args.items() if value}
    if (
        "from_" not in parts
        or parts - {"expressions", "from_", "where"}
        or [type(column) for column in inner.expressions] != [exp.Star]
    ):
        raise QueryError(
            "FROM: a subquery or WITH may only filter: (SELECT * FROM stream WHERE …); register a "
            "query of its own for the rest"
        )
    table = _table(select)
    assert table is not None
    names |= {table.alias, table.name}
    common = select.args.get("with_")
    if common is not None:
        left = [one for one in common.expressions if one.this is not inner]
        select.set("with_", exp.With(expressions=left) if left else None)
    pivots = table.args.get("pivots")
    source = inner.args["from_"]
    if pivots:
        source.this.set("pivots", pivots)
    select.set("from_", source)
    conditions = [
        one.args["where"].this for one in (inner, select) if one.args.get("where") is not None
    ]
    if conditions:
        both = exp.And(
            this=exp.Paren(this=conditions[0]), expression=exp.Paren(this=conditions[-1])
        )
        select.set("where", exp.Where(this=both if len(conditions) == 2 else conditions[0]))
    return select


def _unqualify(select: exp.Select, names: set[str]) -> None:
    for column in list(select.find_all(exp.Column)):
        table = column.args.get("table")
        if table is None or column.args.get("db") is not None:
            continue
        if table.name in names:
            column.set("table", None)
        elif table.name == "window" and column.name in _WINDOW_PARTS:
            column.set("table", None)
            column.this.set("this", _WINDOW_PARTS[column.name])


def _count_columns(select: exp.Select) -> None:
    columns = select.expressions
    group, order = select.args.get("group"), select.args.get("order")
    ordered = order.expressions if order is not None else []
    for node in [*(group.expressions if group is not None else []), *(one.this for one in ordered)]:
        if isinstance(node, exp.Literal) and not node.is_string:
            if not node.this.isdigit() or not 1 <= int(node.this) <= len(columns):
                clause = "GROUP BY" if isinstance(node.parent, exp.Group) else "ORDER BY"
                raise QueryError(
                    f"{clause} {node.this}: expected the number of a column of SELECT, 1 to "
                    f"{len(columns)}"
                )
            column = columns[int(node.this) - 1]
            node.replace(
                exp.column(column.alias) if isinstance(column, exp.Alias) else column.copy()
            )
