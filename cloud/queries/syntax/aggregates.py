"""Aggregates of a query file: each becomes slots of mergeable partials, and an expression. Pure.

What has slots of its own: counts, sums, minima, maxima, variance, the reading that is first or last
in some order, and three sketches. All other aggregates are computed from these when a result is
made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from sqlglot import exp

from edgewake.cloud.queries.advice import of_node
from edgewake.cloud.queries.query import Aggregate, Extreme
from edgewake.cloud.queries.terms.calls import Typed, call
from edgewake.cloud.queries.terms.expressions import (
    AGGREGATE_FUNCTIONS,
    Scope,
    number,
    refused,
    sql_of,
    translate,
)
from edgewake.cloud.queries.terms.functions import BOOLEAN, LIST, NUMBER, STRING, TIME, Kind
from edgewake.cloud.queries.terms.tree import Call, Expression, Field, Literal
from edgewake.protocol.errors import QueryError

TOP_K_MAX: Final = 100
"""Largest k of approx_top_k."""
RANKS_MAX: Final = 20
"""Quantiles of one list."""
DISTINCT_ERROR_MIN: Final = 0.0081
"""Standard error of approx_count_distinct, always; a smaller one cannot be asked for."""
_FUNCTIONS: Final = ", ".join(AGGREGATE_FUNCTIONS)
_NUMERIC: Final[Mapping[type[exp.Expr], str]] = {
    exp.Sum: "sum",
    exp.Avg: "avg",
    exp.Min: "min",
    exp.Max: "max",
}
ONLY_COUNT: Final = "{clause}: DISTINCT is only possible in count(DISTINCT x)"
_ANONYMOUS: Final = ("mean", "every", "some")
_KINDS: Final = (exp.AggFunc, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)
T = TypeVar("T")


def is_aggregate(node: exp.Expr) -> bool:
    """Is it a function over all readings of a window and group?"""
    return isinstance(node, _KINDS) or (
        isinstance(node, exp.Anonymous) and str(node.this).lower() in _ANONYMOUS
    )


def _place(items: list[T], item: T) -> int:
    if item not in items:
        items.append(item)
    return items.index(item)


class Slots:
    """Reads aggregates, and holds the slots that they need so far."""

    def __init__(self, scope: Scope) -> None:
        """`scope`: of the readings."""
        self._scope = scope
        self.aggregates: list[Aggregate] = []
        self.numbers: list[Expression] = []
        self.moments: list[Expression] = []
        self.extremes: list[Extreme] = []
        self.distinct: list[tuple[Expression, Kind]] = []
        self.quantiles: list[Expression] = []
        self.tops: list[tuple[Expression, Kind]] = []

    def read(self, node: exp.Expr, clause: str) -> Typed:
        """An expression over the values of slots, with its type. Raises QueryError."""
        condition: Expression | None = None
        if isinstance(node, exp.Filter):
            condition = self._condition(node.expression.this, f"{clause}: FILTER")
            node = node.this
        if isinstance(node, exp.IgnoreNulls):
            node = node.this
        elif isinstance(node, exp.RespectNulls):
            raise QueryError(f"{clause}: RESPECT NULLS: nulls never count here; leave it out")
        return _One(self, self._scope, clause, condition).read(node)

    def _condition(self, node: exp.Expr, clause: str) -> Expression:
        expression, kind = translate(node, self._scope, clause)
        if kind not in (None, BOOLEAN):
            raise QueryError(f"{clause}: expected a condition, found a {kind}")
        return expression

    def value(
        self, function: str, slot: int = 0, parameters: tuple[float, ...] = (), kind: Kind = None
    ) -> Expression:
        """The value of a slot, in expressions over results."""
        for known in self.aggregates:
            if (known.function, known.slot, known.parameters) == (function, slot, parameters):
                return Field(known.name)
        self.aggregates.append(
            Aggregate(f"#{len(self.aggregates)}", function, slot, parameters, kind)
        )
        return Field(self.aggregates[-1].name)

    def number(self, function: str, expression: Expression) -> Expression:
        """count, sum, avg, min or max of an expression."""
        return self.value(function, _place(self.numbers, expression))

    def variance(self, expression: Expression) -> Expression:
        """The population variance of an expression."""
        return self.value("variance", _place(self.moments, expression))

    def extreme(self, which: str, order: Expression, value: Expression, kind: Kind) -> Expression:
        """The value at the largest (most) or smallest (least) order."""
        return self.value(which, _place(self.extremes, Extreme(order, value, kind)), kind=kind)


class _One:
    """Reads one aggregate, whose readings a FILTER may choose."""

    def __init__(
        self, slots: Slots, scope: Scope, clause: str, condition: Expression | None
    ) -> None:
        self._slots, self._scope, self._clause, self._condition = slots, scope, clause, condition

    def read(self, node: exp.Expr) -> Typed:
        if isinstance(node, exp.Anonymous):
            return self._by_name(node)
        reader = _READERS.get(type(node))
        if reader is None and of_node(node) is not None:
            raise refused(node, self._clause)
        if reader is None:
            raise QueryError(f"{self._clause}: {sql_of(node)}: expected {_FUNCTIONS}")
        self._refuse_distinct(node)
        return reader(self, node)

    def _by_name(self, node: exp.Expr) -> Typed:
        name = str(node.this).lower()
        if len(node.expressions) != 1:
            raise QueryError(f"{self._clause}: {name} takes one argument")
        if isinstance(node.expressions[0], exp.Distinct):
            raise QueryError(ONLY_COUNT.format(clause=self._clause))
        match name:
            case "mean":
                return self._slots.number("avg", self._number(node.expressions[0], "mean")), NUMBER
            case "every" | "some":
                return self._bool(node.expressions[0], every=name == "every")
            case _:
                raise AssertionError(f"{name} stands in _ANONYMOUS and has no case here")

    def _refuse_distinct(self, node: exp.Expr) -> None:
        if isinstance(node.this, exp.Distinct) and not isinstance(node, exp.Count):
            raise QueryError(ONLY_COUNT.format(clause=self._clause))

    def _value(self, node: exp.Expr) -> Typed:
        expression, kind = translate(node, self._scope, self._clause)
        if self._condition is not None:
            expression = Call("case", (self._condition, expression, Literal(None)))
        return expression, kind

    def _number(self, node: exp.Expr, function: str) -> Expression:
        expression, kind = self._value(node)
        if kind not in (None, NUMBER):
            raise QueryError(f"{self._clause}: {function} takes a number, found a {kind}")
        return expression

    def count(self, node: exp.Expr) -> Typed:
        if isinstance(node.this, exp.Star):
            if self._condition is None:
                return self._slots.value("count_all"), NUMBER
            return self._count_of(self._condition), NUMBER
        if isinstance(node.this, exp.Distinct):
            if len(node.this.expressions) != 1:
                raise QueryError(
                    f"{self._clause}: count(DISTINCT …) takes one expression; put several "
                    "together with concat(a, ' ', b)"
                )
            return self._distinct(node.this.expressions[0])
        return self._slots.number("count", _countable(*self._value(node.this))), NUMBER

    def count_if(self, node: exp.Expr) -> Typed:
        return self._count_of(self._boolean(node.this, "count_if")), NUMBER

    def _count_of(self, condition: Expression) -> Expression:
        return self._slots.number("count", Call("case", (condition, Literal(1.0), Literal(None))))

    def _boolean(self, node: exp.Expr, function: str) -> Expression:
        expression, kind = self._value(node)
        if kind not in (None, BOOLEAN):
            raise QueryError(f"{self._clause}: {function} takes a condition, found a {kind}")
        return expression

    def numeric(self, node: exp.Expr) -> Typed:
        function = _NUMERIC[type(node)]
        if [extra for extra, value in node.args.items() if value and extra != "this"]:
            raise QueryError(f"{self._clause}: {function} takes one argument")
        expression, kind = self._value(node.this)
        if kind is TIME and function in ("min", "max"):
            return self._slots.number(function, expression), TIME
        if kind is STRING and function in ("min", "max"):
            return self._slots.extreme(
                "least" if function == "min" else "most", Literal(0.0), expression, STRING
            ), STRING
        if kind not in (None, NUMBER):
            raise QueryError(f"{self._clause}: {function} takes a number, found a {kind}")
        return self._slots.number(function, expression), NUMBER

    def bool_and(self, node: exp.Expr) -> Typed:
        return self._bool(node.this, every=True)

    def bool_or(self, node: exp.Expr) -> Typed:
        return self._bool(node.this, every=False)

    def _bool(self, node: exp.Expr, *, every: bool) -> Typed:
        condition = self._boolean(node, "bool_and" if every else "bool_or")
        value = Call(
            "case",
            (condition, Literal(1.0), Call("not", (condition,)), Literal(0.0), Literal(None)),
        )
        return Call(
            ">", (self._slots.number("min" if every else "max", value), Literal(0.5))
        ), BOOLEAN

    def spread(self, node: exp.Expr) -> Typed:
        """Variance and standard deviation."""
        x = self._number(node.this, _called(node))
        variance = self._slots.variance(x)
        if isinstance(node, exp.Variance | exp.Stddev | exp.StddevSamp):
            variance = _sample(variance, self._slots.number("count", x))
        if isinstance(node, exp.Stddev | exp.StddevSamp | exp.StddevPop):
            return Call("sqrt", (variance,)), NUMBER
        return variance, NUMBER

    def together(self, node: exp.Expr) -> Typed:
        """corr, covar, regr_slope and regr_intercept, over the readings that have both values.

        cov(x, y) = (var(x + y) - var(x - y)) / 4.
        """
        name = _called(node)
        x, y = self._number(node.this, name), self._number(node.expression, name)
        x, y = _where_both(x, y), _where_both(y, x)
        sum_, difference = (self._slots.variance(Call(sign, (x, y))) for sign in "+-")
        covariance = Call("/", (Call("-", (sum_, difference)), Literal(4.0)))
        if isinstance(node, exp.CovarPop):
            return covariance, NUMBER
        if isinstance(node, exp.CovarSamp):
            return _sample(covariance, self._slots.number("count", x)), NUMBER
        if isinstance(node, exp.RegrSlope | exp.RegrIntercept):
            slope = Call("/", (covariance, self._slots.variance(y)))
            if isinstance(node, exp.RegrSlope):
                return slope, NUMBER
            means = [self._slots.number("avg", one) for one in (x, y)]
            return Call("-", (means[0], Call("*", (slope, means[1])))), NUMBER
        deviations = [Call("sqrt", (self._slots.variance(one),)) for one in (x, y)]
        return Call("/", (covariance, Call("*", tuple(deviations)))), NUMBER

    def by(self, node: exp.Expr) -> Typed:
        """max_by and min_by."""
        which, name = ("most", "max_by") if isinstance(node, exp.ArgMax) else ("least", "min_by")
        if node.args.get("count"):
            raise QueryError(f"{self._clause}: {name} takes two arguments")
        value, kind = self._value(node.this)
        order, order_kind = translate(node.expression, self._scope, self._clause)
        if order_kind not in (None, NUMBER, TIME):
            raise QueryError(
                f"{self._clause}: {name}(x, y): expected a number or a time as y, found a "
                f"{order_kind}"
            )
        return self._slots.extreme(which, order, value, kind), kind

    def last(self, node: exp.Expr) -> Typed:
        """first, last and any_value: by event time."""
        value, kind = self._value(node.this)
        which = "most" if isinstance(node, exp.Last | exp.LastValue) else "least"
        return self._slots.extreme(which, Field("t"), value, kind), kind

    def distinct(self, node: exp.Expr) -> Typed:
        error = node.args.get("accuracy")
        if error is not None:
            _constant(
                error,
                self._clause,
                "approx_count_distinct(x, error): its error is 0.81 % always",
                DISTINCT_ERROR_MIN,
                1,
            )
        return self._distinct(node.this)

    def _distinct(self, node: exp.Expr) -> Typed:
        return self._slots.value(
            "distinct", _place(self._slots.distinct, self._value(node))
        ), NUMBER

    def quantile(self, node: exp.Expr) -> Typed:
        if node.args.get("accuracy") or node.args.get("weight"):
            raise QueryError(
                f"{self._clause}: approx_percentile takes two arguments: its error of rank is "
                "about 1.3 % always"
            )
        slot = _place(self._slots.quantiles, self._number(node.this, "approx_percentile"))
        rank = (
            exp.Literal.number("0.5") if isinstance(node, exp.Median) else node.args.get("quantile")
        )
        if isinstance(rank, exp.Array):
            if not 1 <= len(rank.expressions) <= RANKS_MAX:
                raise QueryError(
                    f"{self._clause}: approx_percentile(x, array(…)): expected 1 to {RANKS_MAX} "
                    "ranks"
                )
            ranks = tuple(
                _constant(one, self._clause, "approx_percentile(x, array(rank, …))", 0, 1)
                for one in rank.expressions
            )
            return self._slots.value("quantiles", slot, ranks), LIST
        return self._slots.value(
            "quantile", slot, (_constant(rank, self._clause, "approx_percentile(x, rank)", 0, 1),)
        ), NUMBER

    def within(self, node: exp.Expr) -> Typed:
        """percentile_cont(rank) WITHIN GROUP (ORDER BY x) and others that are exact elsewhere."""
        if isinstance(node.this, exp.Mode):
            raise QueryError(f"{self._clause}: {sql_of(node)}: write mode(x)")
        raise QueryError(
            f"{self._clause}: {sql_of(node)}: a quantile is a value of the readings here, to 1.3 "
            "% of rank, with nothing between two of"
            " them: approx_percentile(x, rank); quantile_cont(x, rank) of `edgewake sql` is exact"
        )

    def top_k(self, node: exp.Expr) -> Typed:
        if node.args.get("counters"):
            raise QueryError(f"{self._clause}: approx_top_k takes two arguments")
        items = self._value(node.this)
        k = _constant(
            node.args.get("expression") or exp.Literal.number(5),
            self._clause,
            "approx_top_k(x, k)",
            1,
            TOP_K_MAX,
        )
        return self._slots.value(
            "top_k", _place(self._slots.tops, items), (int(k),), items[1]
        ), LIST

    def mode(self, node: exp.Expr) -> Typed:
        """The most frequent value, from the same slot as approx_top_k."""
        if node.this is None or node.args.get("deterministic"):
            raise QueryError(f"{self._clause}: mode takes one argument")
        items = self._value(node.this)
        slot = _place(self._slots.tops, items)
        return self._slots.value("mode", slot, (), items[1]), items[1]


_READERS: Final[Mapping[type[exp.Expr], Callable[[_One, exp.Expr], Typed]]] = {
    exp.Count: _One.count,
    exp.CountIf: _One.count_if,
    **dict.fromkeys(_NUMERIC, _One.numeric),
    exp.LogicalAnd: _One.bool_and,
    exp.LogicalOr: _One.bool_or,
    **dict.fromkeys(
        (exp.Variance, exp.VariancePop, exp.Stddev, exp.StddevSamp, exp.StddevPop), _One.spread
    ),
    **dict.fromkeys(
        (exp.Corr, exp.CovarPop, exp.CovarSamp, exp.RegrSlope, exp.RegrIntercept), _One.together
    ),
    **dict.fromkeys((exp.ArgMax, exp.ArgMin), _One.by),
    **dict.fromkeys((exp.First, exp.FirstValue, exp.Last, exp.LastValue, exp.AnyValue), _One.last),
    exp.ApproxDistinct: _One.distinct,
    **dict.fromkeys((exp.ApproxQuantile, exp.Quantile, exp.Median), _One.quantile),
    exp.WithinGroup: _One.within,
    exp.ApproxTopK: _One.top_k,
    exp.Mode: _One.mode,
}


def _called(node: exp.Expr) -> str:
    return node.sql_name().lower() if isinstance(node, exp.Func) else "it"


def _sample(of_population: Expression, count: Expression) -> Expression:
    """The variance of a sample: times n / (n - 1); null for one reading."""
    return call(
        "/",
        [(Call("*", (of_population, count)), NUMBER), (Call("-", (count, Literal(1.0))), NUMBER)],
        "SELECT",
    )[0]


def _where_both(x: Expression, y: Expression) -> Expression:
    return x if x == y else Call("case", (Call("not", (Call("is_null", (y,)),)), x, Literal(None)))


def _countable(expression: Expression, kind: Kind) -> Expression:
    """What can be counted in a slot of numbers: 1 for any value that is not a number itself."""
    if kind in (None, NUMBER, TIME):
        return expression
    return Call("case", (Call("is_null", (expression,)), Literal(None), Literal(1.0)))


def _constant(node: Any, clause: str, what: str, low: float, high: float) -> float:
    value = number(str(node.this)) if isinstance(node, exp.Literal) and not node.is_string else None
    if value is None or not low <= value <= high:
        raise QueryError(f"{clause}: {what}: expected a number from {low:g} to {high:g}")
    return value
