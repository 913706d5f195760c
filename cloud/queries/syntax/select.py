"""The SELECT of a query file: from sqlglot's tree to the values of `query`.

No I/O and no Spark.

What is wrong goes to the reader's faults, and it reads on, so that all faults of a file are told at
once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from edgewake.cloud.queries.query import Key, Order, Output, Query, Unpivot
from edgewake.cloud.queries.syntax.aggregates import Slots, is_aggregate
from edgewake.cloud.queries.syntax.column_names import (
    check_outputs,
    column_name,
    slug,
)
from edgewake.cloud.queries.syntax.foreign_table import Foreign
from edgewake.cloud.queries.syntax.from_clause import table_of, types_of, unpivot_kinds, unpivot_of
from edgewake.cloud.queries.syntax.having import is_never
from edgewake.cloud.queries.syntax.join import JoinReader, plain_name
from edgewake.cloud.queries.syntax.lookback_syntax import HistoryReader
from edgewake.cloud.queries.syntax.pattern_syntax import conditions
from edgewake.cloud.queries.syntax.union import agreed, others_of
from edgewake.cloud.queries.syntax.window_syntax import (
    NO_WINDOW,
    calendar,
    is_calendar,
    is_window,
    one_window,
    window,
)
from edgewake.cloud.queries.terms.calls import Typed
from edgewake.cloud.queries.terms.expressions import (
    AGGREGATE_FUNCTIONS,
    TIMES,
    Scope,
    sql_of,
    translate,
)
from edgewake.cloud.queries.terms.faults import Faults
from edgewake.cloud.queries.terms.functions import BOOLEAN, LIST, STRING, TIME, Kind
from edgewake.cloud.queries.terms.tree import Call, Expression, Field, Literal
from edgewake.cloud.queries.terms.windows import ALL, Window
from edgewake.protocol.errors import QueryError
from edgewake.protocol.frames.stream import Stream

TAGS_MAX: Final = 120
"""Rows that one reading becomes: windows it lies in x fields of UNPIVOT. Each costs as much as a
reading."""
LIMIT_MAX: Final = 1_000
"""Rows of a window that LIMIT lets through."""
_WINDOW_COLUMNS: Final = ("window_start", "window_end")
_FUNCTIONS: Final = ", ".join(AGGREGATE_FUNCTIONS)


class SelectReader:
    """Reads one SELECT; `read` gives the query, which may be used only where `faults` is empty."""

    def __init__(
        self,
        select: exp.Expr,
        streams: Mapping[str, Stream] | None,
        faults: Faults,
        zone: str,
        keyed_by: tuple[str, ...] = (),
        foreign: Foreign | None = None,
        on_change: tuple[str, ...] = (),
    ) -> None:
        """`keyed_by`: the columns that identify rows of FROM, where it is a table.

        `foreign` and `on_change`: the headers of these names.
        """
        self._select = select
        self._keyed_by = keyed_by
        self._on_change = on_change
        self._faults = faults
        self._zone = zone
        self._stream = ""
        self._types: Mapping[str, Kind] | None = None
        self._unpivot: Unpivot | None = None
        self._others = others_of(select)
        with faults.within(select.args.get("from_") or select):
            table = table_of(select)
            self._stream = table.name
            with faults.within(table.this):
                self._types = None if streams is None else types_of(table.name, streams)
            self._read_others(streams)
            self._unpivot = unpivot_of(table, self._types, faults)
        times: Mapping[str, Kind] = dict.fromkeys(TIMES, TIME)
        self._join = JoinReader(select, self._stream, self._types, streams, faults, foreign)
        self._history = HistoryReader()
        names: Mapping[str, Kind] = {
            "device": STRING,
            **times,
            **unpivot_kinds(self._unpivot, self._types),
            **self._join.kinds,
        }
        self._scope = Scope(
            self._types, names, faults, zone, lambda node: self._history.read(node, self._scope)
        )
        self._join.check_keys(self._scope)
        self._slots = Slots(self._scope)
        self._conditions: list[Expression] = []
        self._keys: list[Key] = []
        self._key_nodes: list[tuple[exp.Expr, str, Kind]] = []
        self._aliases: dict[str, Typed] = {}

    def read(self, *, name: str, description: str, lateness_ms: int, reopen_ms: int) -> Query:
        """The query."""
        query = self._read(
            name=name, description=description, lateness_ms=lateness_ms, reopen_ms=reopen_ms
        )
        query = replace(
            query,
            others=tuple(table.name for table in self._others),
            history=tuple(self._history.calls),
        )
        self._check_change(query)
        query = self._join.joined(query)
        if query.others and query.is_completed:
            what = query.completed_by
            with self._faults.within(self._others[0]):
                raise QueryError(
                    f"UNION ALL: not with {what}; register a query for each stream, and follow "
                    "all: edgewake tail NAME_1 NAME_2"
                )
        return query

    def _read_others(self, streams: Mapping[str, Stream] | None) -> None:
        for table in self._others:
            types = self._types
            if streams is None or types is None:
                return
            self._types = None  # what is wrong with one is said; its fields are believed
            with self._faults.within(table):
                self._types = agreed(self._stream, types, table.name, types_of(table.name, streams))

    def _read(self, *, name: str, description: str, lateness_ms: int, reopen_ms: int) -> Query:
        if self._is_rows() or self._keyed_by:
            where, rows = self._where(), self._rows()
            return Query(
                is_table=bool(self._keyed_by),
                on_change=self._on_change,
                keys=tuple(Key(name, Field(name)) for name in self._keyed_by),
                name=name,
                description=description,
                lateness_ms=lateness_ms,
                reopen_ms=reopen_ms,
                stream=self._stream,
                window=ALL if self._keyed_by else Window(size_ms=1, slide_ms=1),
                where=where,
                outputs=tuple(rows),
            )
        window, groups = self._group()
        with self._faults.within(self._select.args.get("group")):
            if window.hops * len(self._unpivot.fields if self._unpivot else "1") > TAGS_MAX:
                raise QueryError(
                    f"GROUP BY window: one reading would become more than {TAGS_MAX} rows; use a "
                    "longer slide or fewer fields"
                )
        where = self._where()
        outputs = self._outputs(groups)
        having = self._having()
        order, limit = self._order(), self._limit()
        slots = self._slots
        if window.is_sequence:
            self._check_sequence()
        return Query(
            name=name,
            description=description,
            lateness_ms=lateness_ms,
            reopen_ms=reopen_ms,
            stream=self._stream,
            window=window,
            unpivot=self._unpivot,
            where=where,
            keys=tuple(self._keys),
            aggregates=tuple(slots.aggregates),
            outputs=tuple(outputs),
            having=having,
            order=tuple(order),
            limit=limit,
            conditions=tuple(self._conditions),
            numbers=tuple(slots.numbers),
            moments=tuple(slots.moments),
            extremes=tuple(slots.extremes),
            distinct=tuple(slots.distinct),
            quantiles=tuple(slots.quantiles),
            tops=tuple(slots.tops),
        )

    def _check_sequence(self) -> None:
        """Check a window that the readings of a key decide.

        It has no quantiles, no mode and no `approx_top_k`, and one group.
        """
        node = self._select.args.get("limit")
        with self._faults.within(node):
            if node is not None:
                raise QueryError(
                    "LIMIT: each session, window by count and pattern is of one group alone: "
                    "there is one row, no first of many"
                )
        slots = self._slots
        with self._faults.within(self._select):
            if slots.quantiles or slots.tops:
                raise QueryError(
                    "SELECT: sessions, windows by count and patterns have all aggregates but "
                    "quantiles, mode and approx_top_k"
                )

    def _is_rows(self) -> bool:
        """Is each reading a row of its own?"""
        clauses = [
            self._select.args.get(clause) for clause in ("group", "having", "order", "limit")
        ]
        columns = [node for column in self._select.expressions for node in column.walk()]
        return not any(clauses) and not any(
            is_aggregate(node) and node.find_ancestor(exp.Window) is None for node in columns
        )

    def _rows(self) -> list[Output]:
        """The columns of a query without aggregates."""
        outputs: list[Output] = []
        with self._faults.within(self._select.args.get("from_")):
            if self._unpivot is not None:
                raise QueryError("UNPIVOT: only with aggregates; name the fields in SELECT")
        self._check_table()
        for column in self._select.expressions:
            with self._faults.within(column):
                if (found := self._row_column(column)) is not None:
                    outputs.append(found)
        with self._faults.within(self._select):
            identity = self._keyed_by or (
                ("device", "reading", "partner") if self._join.is_paired else ("device", "reading")
            )
            check_outputs(
                len(self._select.expressions), [*identity, *(output.name for output in outputs)]
            )
        return outputs

    def _check_table(self) -> None:
        """Is what says so that FROM is a table right?"""
        if not self._keyed_by:
            return
        for name in self._keyed_by:
            with self._faults.within():
                if self._scope.kind(name) is TIME:
                    raise QueryError(
                        f"header table: {name} differs from reading to reading; expected a name "
                        "that distinguishes rows"
                    )
                column_name(name, "header table")
        with self._faults.within(self._select):
            if not self._is_rows():
                raise QueryError(
                    "header table: a table's rows are emitted as they are, without GROUP BY, "
                    "aggregates, ORDER BY and LIMIT; a query"
                    " without the header has them"
                )

    def _check_change(self, query: Query) -> None:
        """Can each reading be compared with the one before?"""
        if not self._on_change:
            return
        for name in self._on_change:
            with self._faults.within():
                if self._scope.kind(name) is TIME:
                    raise QueryError(
                        f"header on_change: {name} differs from reading to reading; expected "
                        "device, and fields that tell its parts apart"
                    )
        with self._faults.within(self._select):
            if not self._is_rows():
                raise QueryError(
                    "header on_change: readings are compared as they are, without GROUP BY, "
                    "aggregates, ORDER BY and LIMIT; in windows write "
                    "count(DISTINCT x), or HAVING first(x) <> last(x)"
                )
            if "device" not in self._on_change:
                raise QueryError(
                    "header on_change: expected device among the columns, because only readings "
                    "of one device have an order: `-- on_change: device, "
                    f"{self._on_change[0]}`"
                )
            if query.history or self._select.args.get("joins"):
                what = query.history[0].past.function if query.history else "JOIN"
                raise QueryError(f"header on_change: not with {what}")
            if not query.compared:
                raise QueryError(
                    "header on_change: SELECT names no column that can stay the same; expected "
                    "one beside device and times"
                )

    def _row_column(self, column: exp.Expr) -> Output | None:
        node = column.this if isinstance(column, exp.Alias) else column
        if isinstance(node, exp.Star):
            raise QueryError(
                "SELECT *: expected the names of fields, so that a field that comes later changes "
                "no query"
            )
        expression, _ = translate(node, self._scope, f"SELECT {column.alias}".rstrip())
        name = column.alias or (plain_name(node) if isinstance(node, exp.Column) else slug(node))
        # Every row has it.
        if expression == Field(name) and name in (self._keyed_by or ("device",)):
            return None
        return Output(column_name(name, "SELECT"), expression)

    def _group(self) -> tuple[Window, Sequence[exp.Expr]]:
        """The window, and the nodes of the keys."""
        group = self._select.args.get("group")
        nodes = list(group.expressions) if group is not None else []
        windows = [node for node in nodes if is_window(node)]
        found = NO_WINDOW
        with self._faults.within(group or self._select):
            if group is not None and [
                name for name, value in group.args.items() if value and name != "expressions"
            ]:
                raise QueryError(
                    "GROUP BY: expected columns and one window(event_time, size[, slide])"
                )
            if not windows:
                windows = [node for node in nodes if is_calendar(self._named(node))][:1]
            if not windows:
                return ALL, nodes
            node = one_window(windows)
            with self._faults.within(node):
                found = window(node) if is_window(node) else calendar(self._named(node), self._zone)
            self._conditions = [
                self._condition(one, self._scope, "GROUP BY") for one in conditions(node)
            ]
            if not is_window(node):
                self._key_nodes.append((self._named(node), "window_start", TIME))
        return found, [node for node in nodes if node not in windows]

    def _named(self, node: exp.Expr) -> exp.Expr:
        """What a name of SELECT stands for.

        A field of that name goes before, as in any SQL: else `SELECT floor(cpu) AS cpu … GROUP BY
        cpu` would have other groups here than in what is asked of the stored readings.
        """
        if isinstance(node, exp.Column) and not self._is_read(node.name):
            for column in self._select.expressions:
                if isinstance(column, exp.Alias) and column.alias == node.name:
                    found: exp.Expr = column.this
                    return found
        return node

    def _is_read(self, name: str) -> bool:
        """Does each reading have it, or the row that a JOIN finds?"""
        return name in self._scope.extra or name in (self._scope.types or ())

    def _where(self) -> Expression | None:
        where = self._select.args.get("where")
        return None if where is None else self._condition(where.this, self._scope, "WHERE")

    def _having(self) -> Expression | None:
        having = self._select.args.get("having")
        if having is None:
            return None
        condition = self._condition(
            having.this, self._over_results("HAVING", aliases=True), "HAVING"
        )
        counts = {one.name for one in self._slots.aggregates if one.function == "count_all"}
        with self._faults.within(having):
            if is_never(condition, counts):
                raise QueryError(
                    "HAVING: no row passes: without a reading there is no row, so count(*) is 1 "
                    "or more; for silent devices write"
                    " GROUP BY absence_window(event_time, '5 minutes'), device"
                )
        return condition

    def condition(self, node: exp.Expr, name: str) -> Expression:
        """A condition over the readings that stands outside of SELECT; `name`: where.

        Before `read`.
        """
        return self._condition(node, self._scope, name)

    def _condition(self, clause: exp.Expr, scope: Scope, name: str) -> Expression:
        expression, kind = translate(clause, scope, name)
        with self._faults.within(clause):
            if kind not in (None, BOOLEAN):
                raise QueryError(f"{name}: expected a condition, found a {kind}")
        return expression

    def _outputs(self, groups: Sequence[exp.Expr]) -> list[Output]:
        columns = self._select.expressions
        outputs: list[Output] = []
        for node in groups:
            with self._faults.within(node):
                self._keys.append(self._key(node))
        for column in columns:
            with self._faults.within(column):
                if (found := self._column(column)) is not None:
                    outputs.append(found)
        with self._faults.within(self._select):
            check_outputs(
                len(columns),
                [*(key.name for key in self._keys), *(output.name for output in outputs)],
            )
            if not self._slots.aggregates and not self._faults:
                raise QueryError(f"SELECT: expected at least one aggregate: {_FUNCTIONS}")
        return outputs

    def _key(self, node: exp.Expr) -> Key:
        _check_no_constant(node, "GROUP BY")
        meant = self._named(node)
        expression, kind = translate(meant, self._scope, "GROUP BY")
        names = [
            column.alias
            for column in self._select.expressions
            if isinstance(column, exp.Alias) and column.this == meant
        ]
        if isinstance(node, exp.Column):
            written = plain_name(node)
        else:
            written = names[0] if names else slug(meant)
        name = column_name(written, "GROUP BY")
        self._key_nodes.append((meant, name, kind))
        return Key(name, expression)

    def _column(self, column: exp.Expr) -> Output | None:
        """A column of SELECT; None for a key or a time of the window: every result has those."""
        node = column.this if isinstance(column, exp.Alias) else column
        if isinstance(node, exp.Star):
            raise QueryError("SELECT *: expected GROUP BY columns and aggregates with names")
        alias = column.alias if isinstance(column, exp.Alias) else ""
        before = len(self._faults)
        expression, kind = translate(
            node, self._over_results(f"SELECT {alias}".rstrip()), f"SELECT {alias}".rstrip()
        )
        if len(self._faults) > before:
            # So that its name in HAVING or ORDER BY is not a second fault.
            self._aliases[alias] = Literal(None), None
            return None
        plain = expression.name if isinstance(expression, Field) else None
        if (
            plain is not None
            and (plain in _WINDOW_COLUMNS or plain in self._key_names())
            and alias in ("", plain)
        ):
            return None
        name = column_name(alias or slug(node), "SELECT")
        self._aliases[name] = expression, kind
        return Output(name, expression)

    def _key_names(self) -> set[str]:
        return {name for _, name, _ in self._key_nodes}

    def _over_results(self, clause: str, *, aliases: bool = False) -> Scope:
        """The scope of what is computed when a result is made."""
        return Scope(
            {},
            {},
            self._faults,
            self._zone,
            lambda node: self._of_result(node, clause, aliases=aliases),
        )

    def _of_result(self, node: exp.Expr, clause: str, *, aliases: bool) -> Typed | None:
        if is_aggregate(node):
            return self._slots.read(node, clause)
        for meant, name, kind in self._key_nodes:
            if node in (meant, exp.column(name)):
                return Field(name), kind
        if isinstance(node, exp.Anonymous) and str(node.this).lower() == "window_time":
            return Call("-", (Field("window_end"), Literal(1))), TIME
        if not isinstance(node, exp.Column) or node.args.get("table") is not None:
            return None
        if node.name in _WINDOW_COLUMNS:
            return Field(node.name), TIME
        if aliases and node.name in self._aliases:
            return self._aliases[node.name]
        self._scope.kind(node.name)
        raise QueryError(f"{clause.split()[0]} {node.name}: neither an aggregate nor in GROUP BY")

    def _order(self) -> list[Order]:
        order = self._select.args.get("order")
        found: list[Order] = []
        for one in order.expressions if order is not None else []:
            expression, kind = translate(
                one.this, self._over_results("ORDER BY", aliases=True), "ORDER BY"
            )
            with self._faults.within(one):
                _check_no_constant(one.this, "ORDER BY")
                if kind is LIST:
                    raise QueryError(
                        "ORDER BY: a list has no order; expected a number, text or time"
                    )
            found.append(Order(expression, bool(one.args.get("desc"))))
        with self._faults.within(order):
            if found and self._select.args.get("limit") is None:
                raise QueryError(
                    "ORDER BY: results are a stream and have no order; with LIMIT n it gives the "
                    "first n rows of each window"
                )
        return found

    def _limit(self) -> int | None:
        limit = self._select.args.get("limit")
        if limit is None:
            return None
        with self._faults.within(limit):
            text = limit.expression.name if isinstance(limit.expression, exp.Literal) else ""
            if not text.isdigit() or not 1 <= int(text) <= LIMIT_MAX:
                raise QueryError(
                    f"LIMIT: expected a number from 1 to {LIMIT_MAX}, the rows of each window"
                )
            if self._select.args.get("order") is None:
                raise QueryError(
                    "LIMIT: results are a stream and have no end; ORDER BY x DESC LIMIT n gives "
                    "the first n rows of each window"
                )
            return int(text)
        return None


def _check_no_constant(node: exp.Expr, clause: str) -> None:
    """Refuse a text in quotes, which most often was meant as a name: it is alike for all rows."""
    if isinstance(node, exp.Literal):
        raise QueryError(
            f"{clause} {sql_of(node)}: a constant is the same for every row; a name stands without "
            "quotes, in backticks, or in double quotes"
        )
