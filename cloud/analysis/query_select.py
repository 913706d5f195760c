"""The SELECT of a query file: from sqlglot's tree to the values of `query_plan`. No I/O and no Spark.

What is wrong goes to the reader's faults, and it reads on, so that all faults of a file are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, TypeVar

from sqlglot import exp

from edgewake.cloud.analysis.expressions import AGGREGATES, Call, Expression, Field, Kind, Literal, Scope, number, translate
from edgewake.cloud.analysis.query_faults import Faults, UnknownStream
from edgewake.cloud.analysis.query_plan import Aggregate, Key, Query, Unpivot
from edgewake.protocol.errors import QueryError
from edgewake.protocol.names import FIELD_PATTERN, RESERVED_FIELDS
from edgewake.protocol.stream import FieldType, Stream

OUTPUTS_MAX: Final = 64
"""Columns of a result."""
TAGS_MAX: Final = 120
"""Rows that one reading becomes: windows it lies in x fields of UNPIVOT. Each costs as much as a reading."""
SIZE_MS_MIN: Final = 1_000
SIZE_MS_MAX: Final = 86_400_000
"""A window lasts from 1 second to 1 day: its state is kept as long."""
TOP_K_MAX: Final = 100
"""Largest k of approx_top_k."""
_UNITS_MS: Final = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_RESULT_FIELDS: Final = RESERVED_FIELDS | {"complete"}
"""What a result has beside the columns of its SELECT."""
_WINDOW_COLUMNS: Final = frozenset({"window_start", "window_end"})
_NUMERIC: Final[Mapping[type[exp.Expr], str]] = {exp.Count: "count", exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max"}
_FUNCTIONS: Final = ", ".join(AGGREGATES)
T = TypeVar("T")


def duration_ms(text: str, what: str) -> int:
    """Milliseconds of `30 seconds`, `1 minute` …; raises QueryError."""
    match = re.fullmatch(r"(\d{1,9})\s*(" + "|".join(_UNITS_MS) + r")s?", text.strip(), re.IGNORECASE)
    if match is None:
        raise QueryError(f"{what} {text[:40]!r}: expected a number and a unit, e.g. '30 seconds', '1 minute', '1 hour'")
    return int(match[1]) * _UNITS_MS[match[2].lower()]


_CLAUSES: Final = {
    "joins": "JOIN: dedicated execution is not available yet; expected one stream",
    "with_": "WITH: expected one SELECT over one stream",
    "having": "HAVING: not supported; filter results with where= when you read them",
    "order": "ORDER BY: results are a stream and have no order",
    "limit": "LIMIT: results are a stream and have no end",
    "distinct": "SELECT DISTINCT: not supported; use GROUP BY or approx_count_distinct",
    "laterals": "LATERAL VIEW: not supported; use UNPIVOT for fields",
    "qualify": "QUALIFY: not supported",
    "windows": "WINDOW: not supported; windows of time are written in GROUP BY",
}


def check_clauses(select: exp.Expr, faults: Faults) -> None:
    """Refuse every clause but SELECT, FROM, WHERE and GROUP BY."""
    for clause, value in select.args.items():
        if not value or clause in ("expressions", "from_", "where", "group"):
            continue
        node = value[0] if isinstance(value, list) else value
        with faults.within(node if isinstance(node, exp.Expr) else None):
            raise QueryError(_CLAUSES.get(clause, f"{clause.strip('_').upper()}: not supported; expected SELECT, FROM, WHERE, GROUP BY"))


def table_of(select: exp.Expr) -> exp.Expr:
    """The one stream in FROM; raises QueryError."""
    from_ = select.args.get("from_")
    table = from_.this if from_ is not None else None
    if isinstance(table, exp.Subquery):
        raise QueryError("FROM: a subquery; expected one stream")
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise QueryError("FROM: expected one stream, e.g. FROM host_metrics")
    extra = [name for name, value in table.args.items() if value and name not in ("this", "pivots")]
    if extra:
        raise QueryError(f"FROM {table.sql()[:60]}: {extra[0]}: expected a stream's name alone, or with UNPIVOT")
    return table


def _place(items: list[T], item: T) -> int:
    if item not in items:
        items.append(item)
    return items.index(item)


class SelectReader:
    """Reads one SELECT; `read` gives the query, which is of use only where `faults` are none."""

    def __init__(self, select: exp.Expr, streams: Mapping[str, Stream] | None, faults: Faults) -> None:
        self._select = select
        self._faults = faults
        self._stream = ""
        self._types: Mapping[str, Kind] | None = None
        self._unpivot: Unpivot | None = None
        with faults.within(select.args.get("from_") or select):
            table = table_of(select)
            self._stream = table.name
            with faults.within(table.this):
                self._types = None if streams is None else _types_of(table.name, streams)
            self._unpivot = self._read_unpivot(table)
        self._scope = Scope(self._types, {"device": FieldType.STRING, **self._unpivot_kinds()}, faults)
        self._numbers: list[Expression] = []
        self._distinct: list[tuple[Expression, Kind]] = []
        self._quantiles: list[Expression] = []
        self._tops: list[tuple[Expression, Kind]] = []

    def read(self, *, name: str, description: str, lateness_ms: int, reopen_ms: int) -> Query:
        """The query."""
        size_ms, slide_ms, groups = self._group()
        with self._faults.within(self._select.args.get("group")):
            if size_ms // slide_ms * len(self._unpivot.fields if self._unpivot else "1") > TAGS_MAX:
                raise QueryError(f"GROUP BY window: one reading would become more than {TAGS_MAX} rows; use a longer slide or fewer fields")
        where = self._where()
        keys, aggregates = self._outputs(groups)
        return Query(
            name=name,
            description=description,
            lateness_ms=lateness_ms,
            reopen_ms=reopen_ms,
            stream=self._stream,
            size_ms=size_ms,
            slide_ms=slide_ms,
            unpivot=self._unpivot,
            where=where,
            keys=tuple(keys),
            aggregates=tuple(aggregates),
            numbers=tuple(self._numbers),
            distinct=tuple(self._distinct),
            quantiles=tuple(self._quantiles),
            tops=tuple(self._tops),
        )

    def _read_unpivot(self, table: exp.Expr) -> Unpivot | None:
        pivots = table.args.get("pivots") or []
        if not pivots:
            return None
        pivot = pivots[0]
        values, lists = pivot.args.get("expressions") or [], pivot.args.get("fields") or []
        shaped = len(pivots) == 1 and pivot.args.get("unpivot") and len(values) == 1 and len(lists) == 1 and isinstance(lists[0], exp.In)
        columns = lists[0].expressions if shaped else []
        if (
            not shaped
            or pivot.args.get("alias")
            or not all(isinstance(c, exp.Column) and isinstance(c.this, exp.Identifier) for c in columns)
        ):
            raise QueryError("FROM: expected `stream UNPIVOT (value FOR metric IN (field, field))`")
        fields = tuple(column.name for column in columns)
        kinds = {self._kind_of(column) for column in columns} - {None}
        if len(kinds) > 1:
            raise QueryError(f"UNPIVOT: fields of several types: {', '.join(sorted(str(kind) for kind in kinds))}")
        return Unpivot(_name(values[0].name, "UNPIVOT"), _name(lists[0].this.name, "UNPIVOT"), fields)

    def _kind_of(self, column: exp.Expr) -> Kind:
        """Type of a field of the stream; None where there is none, which is a fault."""
        with self._faults.within(column):
            return Scope(self._types, {}, self._faults).kind(column.name)
        return None

    def _unpivot_kinds(self) -> Mapping[str, Kind]:
        if self._unpivot is None:
            return {}
        kind = None if self._types is None else self._types.get(self._unpivot.fields[0])
        return {self._unpivot.value: kind, self._unpivot.metric: FieldType.STRING}

    def _group(self) -> tuple[int, int, Sequence[exp.Expr]]:
        group = self._select.args.get("group")
        nodes = list(group.expressions) if group is not None else []
        windows = [node for node in nodes if isinstance(node, exp.Anonymous) and str(node.this).lower() == "window"]
        size_ms = slide_ms = SIZE_MS_MIN
        with self._faults.within(group or self._select):
            if group is not None and [name for name, value in group.args.items() if value and name != "expressions"]:
                raise QueryError("GROUP BY: expected columns and one window(event_time, size[, slide])")
            if len(windows) != 1:
                raise QueryError("GROUP BY: expected one window(event_time, '1 minute'[, '10 seconds'])")
            with self._faults.within(windows[0]):
                size_ms, slide_ms = _window(windows[0])
        return size_ms, slide_ms, [node for node in nodes if node not in windows]

    def _where(self) -> Expression | None:
        where = self._select.args.get("where")
        if where is None:
            return None
        expression, kind = translate(where.this, self._scope, "WHERE")
        with self._faults.within(where):
            if kind not in (None, FieldType.BOOLEAN):
                raise QueryError(f"WHERE: expected a condition, found a {kind}")
        return expression

    def _outputs(self, groups: Sequence[exp.Expr]) -> tuple[list[Key], list[Aggregate]]:
        columns = self._select.expressions
        named = {column.alias: column.this for column in columns if isinstance(column, exp.Alias)}
        keys: list[Key] = []
        aggregates: list[Aggregate] = []
        for node in groups:
            with self._faults.within(node):
                keys.append(self._key(node, named))
        for column in columns:
            with self._faults.within(column):
                if (found := self._column(column, keys)) is not None:
                    aggregates.append(found)
        with self._faults.within(self._select):
            _check_outputs(len(columns), [*(key.name for key in keys), *(aggregate.name for aggregate in aggregates)])
            if not aggregates and not self._faults:
                raise QueryError(f"SELECT: expected at least one aggregate: {_FUNCTIONS}")
        return keys, aggregates

    def _key(self, node: exp.Expr, named: Mapping[str, exp.Expr]) -> Key:
        alias = node.name if isinstance(node, exp.Column) else ""
        if alias in named:
            return Key(_name(alias, "GROUP BY"), translate(named[alias], self._scope, "GROUP BY")[0])
        expression, _ = translate(node, self._scope, "GROUP BY")
        names = [name for name, this in named.items() if this == node]
        if not names and not isinstance(expression, Field):
            raise QueryError(f"GROUP BY {node.sql()[:60]}: expected a name for it in SELECT: {node.sql()[:60]} AS bucket")
        return Key(_name(names[0] if names else alias, "GROUP BY"), expression)

    def _column(self, column: exp.Expr, keys: Sequence[Key]) -> Aggregate | None:
        node = column.this if isinstance(column, exp.Alias) else column
        if isinstance(node, exp.Column) and node.name in _WINDOW_COLUMNS:
            return None
        if isinstance(node, exp.AggFunc):
            if not isinstance(column, exp.Alias):
                raise QueryError(f"SELECT {node.sql()[:60]}: expected a name: {node.sql()[:60]} AS something")
            return self._aggregate(_name(column.alias, "SELECT"), node)
        if isinstance(node, exp.Star):
            raise QueryError("SELECT *: expected GROUP BY columns and aggregates with names")
        before = len(self._faults)
        expression, _ = translate(node, self._scope, "SELECT")
        if len(self._faults) > before:
            return None
        if not any(expression == key.expression or (isinstance(node, exp.Column) and node.name == key.name) for key in keys):
            raise QueryError(f"SELECT {node.sql()[:60]}: neither an aggregate nor in GROUP BY")
        return None

    def _aggregate(self, name: str, node: exp.Expr) -> Aggregate:
        clause = f"SELECT {name}"
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            return Aggregate(name, "count_all")
        if isinstance(node.this, exp.Distinct):
            raise QueryError(f"{clause}: DISTINCT is not supported; use approx_count_distinct(x)")
        if type(node) in _NUMERIC:
            return self._numeric(name, node, clause)
        if isinstance(node, exp.ApproxDistinct) and not node.args.get("accuracy"):
            return Aggregate(name, "distinct", _place(self._distinct, translate(node.this, self._scope, clause)))
        if isinstance(node, exp.ApproxQuantile) and not (node.args.get("accuracy") or node.args.get("weight")):
            expression = self._number(node.this, clause, "approx_percentile")
            rank = _constant(node.args.get("quantile"), clause, "approx_percentile(x, rank)", 0, 1)
            return Aggregate(name, "quantile", _place(self._quantiles, expression), rank)
        if isinstance(node, exp.ApproxTopK) and not node.args.get("counters"):
            items = translate(node.this, self._scope, clause)
            k = _constant(node.args.get("expression") or exp.Literal.number(5), clause, "approx_top_k(x, k)", 1, TOP_K_MAX)
            return Aggregate(name, "top_k", _place(self._tops, items), int(k), items[1])
        raise QueryError(f"{clause}: {node.sql()[:60]}: expected {_FUNCTIONS}")

    def _numeric(self, name: str, node: exp.Expr, clause: str) -> Aggregate:
        function = _NUMERIC[type(node)]
        if [extra for extra, value in node.args.items() if value and extra not in ("this", "big_int")]:
            raise QueryError(f"{clause}: {function} takes one argument")
        if function == "count":
            return Aggregate(name, "count", _place(self._numbers, _countable(*translate(node.this, self._scope, clause))))
        return Aggregate(name, function, _place(self._numbers, self._number(node.this, clause, function)))

    def _number(self, node: exp.Expr, clause: str, function: str) -> Expression:
        expression, kind = translate(node, self._scope, clause)
        if kind not in (None, FieldType.NUMBER):
            raise QueryError(f"{clause}: {function} takes a number, found a {kind}")
        return expression


def _types_of(name: str, streams: Mapping[str, Stream]) -> Mapping[str, Kind]:
    if name not in streams:
        close = get_close_matches(name, streams, n=1)
        known = ", ".join(sorted(streams)[:20]) or "none yet"
        raise UnknownStream(f"FROM: unknown stream {name!r}: " + (f"did you mean {close[0]!r}?" if close else f"known are {known}"))
    return {field: info.type for field, info in streams[name].fields.items()}


def _countable(expression: Expression, kind: Kind) -> Expression:
    """What can be counted in a slot of numbers: 1 for what is there and is no number itself."""
    if kind in (None, FieldType.NUMBER):
        return expression
    return Call("case", (Call("is_null", (expression,)), Literal(None), Literal(1.0)))


def _check_outputs(columns: int, names: Sequence[str]) -> None:
    if columns > OUTPUTS_MAX:
        raise QueryError(f"SELECT: {columns} columns: expected at most {OUTPUTS_MAX}")
    if twice := {name for name in names if names.count(name) > 1}:
        raise QueryError(f"SELECT: the name {min(twice)!r} twice")


def _window(node: exp.Expr) -> tuple[int, int]:
    arguments = node.expressions
    times = [argument.this for argument in arguments[1:] if isinstance(argument, exp.Literal) and argument.is_string]
    first = arguments[0] if arguments else None
    if not isinstance(first, exp.Column) or first.name != "event_time" or not 1 <= len(times) == len(arguments) - 1 <= 2:
        raise QueryError(f"GROUP BY {node.sql()[:60]}: expected window(event_time, '1 minute'[, '10 seconds'])")
    size_ms = duration_ms(times[0], "window size")
    slide_ms = duration_ms(times[1], "window slide") if len(times) == 2 else size_ms
    if not SIZE_MS_MIN <= size_ms <= SIZE_MS_MAX:
        raise QueryError(f"window size {times[0]!r}: expected from 1 second to 1 day")
    if not 0 < slide_ms <= size_ms or size_ms % slide_ms:
        raise QueryError(f"window slide {times[-1]!r}: expected a part of the size that divides it")
    return size_ms, slide_ms


def _constant(node: Any, clause: str, what: str, low: float, high: float) -> float:
    value = number(str(node.this)) if isinstance(node, exp.Literal) and not node.is_string else None
    if value is None or not low <= value <= high:
        raise QueryError(f"{clause}: {what}: expected a number from {low:g} to {high:g}")
    return value


def _name(name: str, clause: str) -> str:
    if FIELD_PATTERN.fullmatch(name) is None or (name in _RESULT_FIELDS and name != "device"):
        raise QueryError(f"{clause}: the name {name[:80]!r} is reserved or not 1-64 of A-Z a-z 0-9 _")
    return name
