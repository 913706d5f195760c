"""JOIN as a query file writes it: one table or stream, equal keys, INNER or LEFT.

From sqlglot's tree to `Join`. Pure.

    FROM vehicle_position v LEFT JOIN routes r ON v.route = r.route
    FROM host_metrics JOIN devices USING (device)
    FROM orders o JOIN clicks c ON o.id = c.id AND c.event_time BETWEEN o.event_time AND
    o.event_time + INTERVAL 1 HOUR

A column of the table is called `table.column` in the tree and in expressions (`qualified`), so that
it is never taken for a field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from sqlglot import exp

from edgewake.cloud.queries.advice import FUNCTIONS, STORED
from edgewake.cloud.queries.query import Join, Query, Within
from edgewake.cloud.queries.syntax.foreign_table import KEY, Foreign
from edgewake.cloud.queries.syntax.join_interval import EXPECTED_TIME, is_about_time, within
from edgewake.cloud.queries.syntax.union import EXPECTED as UNION
from edgewake.cloud.queries.terms.expressions import TIMES, Scope, sql_of
from edgewake.cloud.queries.terms.faults import Faults, UnknownStream
from edgewake.cloud.queries.terms.functions import Kind
from edgewake.cloud.queries.terms.table_columns import DEVICES, columns_of
from edgewake.cloud.queries.terms.tree import Call, Expression, fields_of
from edgewake.cloud.queries.terms.windows import Rule
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.stream import Stream

KEYS_MAX: Final = 4
"""Columns of a table's key."""
OPEN_MAX: Final = 500
"""Windows of a group that a joined query has open at once: all of them are written down with each
that changes."""
_EXPECTED: Final = (
    "expected [LEFT] JOIN table ON stream.field = table.column: its row of that key that was the "
    "latest at the reading's time"
)
_SIDES: Final = {
    "RIGHT": "RIGHT JOIN: a row without a reading has no result; write FROM stream LEFT JOIN table",
    "FULL": (
        "FULL JOIN: a row without a reading has no result; write FROM stream LEFT JOIN table; "
        f"{STORED}"
    ),
    "SEMI": "SEMI JOIN: write JOIN table ON …, it drops readings without a row",
    "ANTI": "ANTI JOIN: write LEFT JOIN table ON … WHERE table.column IS NULL",
    "CROSS": f"a comma or CROSS JOIN pairs each reading with every row; {_EXPECTED}; or for the "
    f"readings of both: {UNION}",
    "NATURAL": f"NATURAL JOIN: a field that comes later would change it; {_EXPECTED}",
}


def join_of(select: exp.Expr) -> exp.Expr | None:
    """The first JOIN."""
    joins = select.args.get("joins") or []
    return joins[0] if joins else None


def qualified(select: exp.Select) -> None:
    """Call the joined table's columns by its name: `d.fleet` becomes one name, `devices.fleet`."""
    join = join_of(select)
    if join is None or not isinstance(join.this, exp.Table):
        return
    table, names = join.this.name, {join.this.name, join.this.alias} - {""}
    for column in list(select.find_all(exp.Column)):
        if (
            column.args.get("db") is None
            and column.args.get("table") is not None
            and column.args["table"].name in names
        ):
            column.set("table", None)
            column.this.set("this", f"{table}.{column.name}")


def plain_name(node: exp.Expr) -> str:
    """The name of a column without its table's."""
    return node.name.rpartition(".")[2]


class JoinReader:
    """Reads the JOIN of a SELECT, where there is one. What is wrong goes to `faults`."""

    def __init__(
        self,
        select: exp.Expr,
        stream: str,
        types: Mapping[str, Kind] | None,
        streams: Mapping[str, Stream] | None,
        faults: Faults,
        foreign: Foreign | None = None,
    ) -> None:
        """`types`: of the stream's fields; `foreign`: of the header.

        A name without a table is the reading's, else the table's.
        """
        self._select, self._faults, self._node = select, faults, join_of(select)
        self._join: Join | None = None
        self.kinds: Mapping[str, Kind] = {}
        """The table's columns, as expressions call them, with their types."""
        if self._node is None:
            return
        columns = [one for one in select.find_all(exp.Column) if "." in one.name]
        with faults.within(self._node.this):
            self._join, known = _read(select, stream, streams, faults, foreign)
            table = self._join.table
            for one in select.find_all(exp.Column):
                if (
                    types is not None
                    and one.name in known
                    and one.name not in {*types, "device", *TIMES}
                ):
                    one.this.set("this", f"{table}.{one.name}")
            self.kinds = (
                {f"{table}.{name}": kind for name, kind in known.items()}
                if known
                else _believed(columns)
            )
        if self._join is None:  # what is wrong with the table is said; its columns are believed
            self.kinds = _believed(columns)

    @property
    def is_paired(self) -> bool:
        """Does it join a stream within a time?"""
        return self._join is not None and self._join.within is not None

    def check_keys(self, scope: Scope) -> None:
        """Are the two sides of ON there, and of one type?"""
        if self._join is None:
            return
        with self._faults.within(self._node):
            for ours, theirs in self._join.keys:
                name = f"{self._join.table}.{theirs}"
                if (
                    len({scope.kind(ours), scope.kind(name)} - {None}) > 1
                    and scope.types is not None
                ):
                    raise QueryError(
                        f"JOIN {self._join.table}: {ours} and {name} are of different types: they "
                        "are never equal"
                    )

    def joined(self, query: Query) -> Query:
        """The query with its join.

        Parts of WHERE that need the row or the history are computed when a reading has them.
        """
        query = replace(query, join=self._join)
        if not query.is_completed:
            return query
        what = query.completed_by
        with self._faults.within(self._node or self._select):
            if query.is_table and query.join is not None and query.join.foreign:
                raise QueryError(
                    f"header table: not with the foreign topic {query.join.foreign}: of a table "
                    "only streams and devices"
                )
            if query.is_table and (query.history or query.is_paired):
                what = query.history[0].past.function if query.history else "a JOIN within a time"
                raise QueryError(
                    f"header table: not with {what}: of a table only the latest rows are known"
                )
            if query.unpivot is not None:
                raise QueryError(f"UNPIVOT: not with {what}; name the fields in SELECT")
            if query.quantiles or query.tops:
                raise QueryError(
                    f"{what}: a query with it has all aggregates but quantiles, mode and "
                    "approx_top_k"
                )
            if query.window.rule is Rule.ABSENCE:
                raise QueryError(f"{what}: not with absence_window")
            if query.is_paired:
                query = _paired(query)
            open_windows = (query.window.size_ms + query.kept_ms) // query.window.slide_ms
            if not query.is_rows and not query.window.is_sequence and open_windows > OPEN_MAX:
                raise QueryError(
                    f"{what}: {open_windows} windows of a group would be open at once, "
                    f"at most {OPEN_MAX}; choose a shorter reopen"
                )
        where, where_after = (None, query.where) if query.is_table else parted(query.where)
        query = replace(query, where=where, where_after=where_after)
        join = query.join
        if join is None:
            return query
        columns = tuple(
            (name, self.kinds.get(f"{join.table}.{name}")) for name in sorted(query.table_columns)
        )
        return replace(query, join=replace(join, columns=columns))


def _believed(columns: Iterable[exp.Column]) -> Mapping[str, Kind]:
    return {column.name: None for column in columns}


def _read(
    select: exp.Expr,
    stream: str,
    streams: Mapping[str, Stream] | None,
    faults: Faults,
    foreign: Foreign | None,
) -> tuple[Join, Mapping[str, Kind]]:
    joins = select.args["joins"]
    if len(joins) > 1:
        raise QueryError(
            "JOIN: one table can be joined; register a query for each of them, and follow all: "
            f"edgewake tail NAME_1 NAME_2; {STORED}"
        )
    join, table = joins[0], joins[0].this
    if isinstance(table, exp.Unnest):
        raise QueryError(f"UNNEST: {FUNCTIONS['unnest']}")
    for word in (join.args.get("method"), join.args.get("side"), join.args.get("kind")):
        if word in _SIDES:
            raise QueryError(_SIDES[word])
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise QueryError(f"JOIN {sql_of(table)}: {_EXPECTED}")
    conditions = _conditions(join.args.get("on"))
    times = [one for one in conditions if is_about_time(one)]
    if table.name == stream and not times:
        raise QueryError(
            f"JOIN {stream}: a stream joined with itself needs a time: {EXPECTED_TIME}; first(x), "
            "last(x), min_by(x, y) … compare readings"
            " of a window"
        )
    _check_time(table)
    if foreign is not None and table.name == foreign.name:
        return _foreign(join, foreign, conditions, streams), foreign.columns
    types = None if streams is None else columns_of(table.name, streams)
    if streams is not None and types is None:
        known = [*streams, DEVICES]
        close = get_close_matches(table.name, known, n=1)
        hint = (
            f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(known)[:20])}"
        )
        raise UnknownStream(f"JOIN: unknown stream {table.name!r}: {hint}")
    equals = [one for one in conditions if one not in times]
    keys = tuple(dict.fromkeys(_using(join) or _keys(equals, table.name)))
    if len(keys) > KEYS_MAX:
        raise QueryError(f"JOIN {table.name}: {len(keys)} columns: expected at most {KEYS_MAX}")
    found = Join(table.name, keys, join.args.get("side") == "LEFT")
    if times:
        found = replace(found, within=Within(0, 0))
        with faults.within(times[0]):
            if streams is not None and table.name not in streams:
                raise QueryError(
                    f"JOIN {table.name}: a table's row is the one of the reading's time, without "
                    "a condition that says so"
                )
            found = replace(found, within=within(times, table.name))
    return found, {} if types is None else types


def _foreign(
    join: exp.Expr,
    foreign: Foreign,
    conditions: Sequence[exp.Expr],
    streams: Mapping[str, Stream] | None,
) -> Join:
    """A JOIN with the table of header `foreign`. Raises QueryError."""
    name = foreign.name
    if name == DEVICES or (streams is not None and name in streams):
        raise QueryError(
            f"header foreign: there is a {'table' if name == DEVICES else 'stream'} {name!r} "
            "already: expected another name"
        )
    keys = tuple(dict.fromkeys(_using(join) or _keys(conditions, name)))
    if [theirs for _, theirs in keys] != [KEY]:
        raise QueryError(
            f"JOIN {name}: a foreign topic's row is found by its key alone: JOIN {name} ON "
            f"stream.field = {name}.{KEY}"
        )
    return Join(name, keys, join.args.get("side") == "LEFT", foreign=foreign.topic)


def _paired(query: Query) -> Query:
    """A query over two streams: its windows wait for partners, too. Raises QueryError."""
    assert query.join is not None
    assert query.join.within is not None
    if query.history:
        raise QueryError(
            f"JOIN {query.join.table}: not with {query.history[0].past.function}: a pair of "
            "readings has no reading before"
        )
    if query.window.is_sequence:
        raise QueryError(
            f"JOIN {query.join.table}: pairs of readings have no order: expected windows of time, "
            "or no window"
        )
    return replace(query, lateness_ms=query.lateness_ms + max(0, query.join.within.latest_ms))


def _check_time(table: exp.Expr) -> None:
    """FOR SYSTEM_TIME AS OF event_time says what is meant anyway."""
    extra = {
        name
        for name, value in table.args.items()
        if value and name not in ("this", "alias", "version")
    }
    version = table.args.get("version")
    is_event_time = version is None or (
        version.args.get("kind") == "AS OF" and version.expression.name == "event_time"
    )
    if extra or not is_event_time:
        raise QueryError(f"JOIN {sql_of(table)}: {_EXPECTED}")


def _using(join: exp.Expr) -> list[tuple[str, str]]:
    return [(one.name, one.name) for one in join.args.get("using") or []]


def _conditions(on: exp.Expr | None) -> list[exp.Expr]:
    if on is None:
        return []
    return list(on.flatten()) if isinstance(on, exp.And) else [on]


def _keys(conditions: Sequence[exp.Expr], table: str) -> Iterable[tuple[str, str]]:
    if not conditions:
        raise QueryError(f"JOIN {table}: {_EXPECTED}")
    for one in conditions:
        sides = [one.this, one.expression] if isinstance(one, exp.EQ) else []
        ours = [
            side.name
            for side in sides
            if isinstance(side, exp.Column) and "." not in side.name and side.name not in TIMES
        ]
        theirs = [
            plain_name(side)
            for side in sides
            if isinstance(side, exp.Column) and side.name.startswith(f"{table}.")
        ]
        if not (len(ours) == len(theirs) == 1):
            raise QueryError(
                f"JOIN {table} ON {sql_of(one)}: {_EXPECTED}; conditions on values belong into "
                "WHERE"
            )
        yield ours[0], theirs[0]


def parted(where: Expression | None) -> tuple[Expression | None, Expression | None]:
    """Split a condition into the part on the reading alone, and the part on row or history."""
    parts = _conjuncts(where)
    with_table = [part for part in parts if any("." in name for name in fields_of(part))]
    return _all_of([part for part in parts if part not in with_table]), _all_of(with_table)


def _conjuncts(where: Expression | None) -> list[Expression]:
    if isinstance(where, Call) and where.function == "and":
        return [part for argument in where.arguments for part in _conjuncts(argument)]
    return [] if where is None else [where]


def _all_of(parts: list[Expression]) -> Expression | None:
    found: Expression | None = None
    for part in parts:
        found = part if found is None else Call("and", (found, part))
    return found
