"""Functions of a device's readings before, as a query file writes them.

From sqlglot's tree to `History`. Pure.

    robust_zscore(temperature, 60)         by the 60 values before this one: median and median
                                           absolute deviation
    trend(temperature, '10 minutes')       slope per second of the last ten minutes
    seasonal_baseline(load, 'day')         the mean in the same hour of the day; 'week': of the week
    seasonal_zscore(load, 'week')          this one's distance from it in standard deviations

Each becomes a name with a point before it (`.0`), which no field has: the driver fills it in
(table_join_job).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from edgewake.cloud.queries.expressions import Field, Scope, Typed, fields_of, sql_of, translate
from edgewake.cloud.queries.functions import NUMBER
from edgewake.cloud.queries.lookback import HOURS, VALUES_MAX, Past
from edgewake.cloud.queries.query import History
from edgewake.cloud.queries.window_syntax import duration_ms
from edgewake.protocol.errors import QueryError

VALUES_MIN: Final = 5
CALLS_MAX: Final = 8
"""Different calls of a query; each keeps a state for each device."""
TIME_MS_MAX: Final = 7 * 86_400_000
FUNCTIONS: Final[Mapping[str, str]] = {
    "robust_zscore": (
        f"robust_zscore(x, 60): x and how many values before it count, {VALUES_MIN} to {VALUES_MAX}"
    ),
    "trend": "trend(x, '10 minutes'): x and the time that counts, up to 7 days",
    "seasonal_baseline": "seasonal_baseline(x, 'day'): x, and 'day' or 'week'",
    "seasonal_zscore": "seasonal_zscore(x, 'day'): x, and 'day' or 'week'",
}
"""Function → how it is written."""


class HistoryReader:
    """Reads such calls, wherever an expression over readings has them. Equal ones are one."""

    def __init__(self) -> None:
        self.calls: list[History] = []

    def read(self, node: exp.Expr, scope: Scope) -> Typed | None:
        """The expression that stands for the call; None for any other call. Raises QueryError."""
        name = str(node.this).lower() if isinstance(node, exp.Anonymous) else ""
        if name not in FUNCTIONS:
            return None
        if len(node.expressions) != 2:
            raise QueryError(f"{sql_of(node)}: expected {FUNCTIONS[name]}")
        found, kind = translate(node.expressions[0], scope, name)
        if kind not in (None, NUMBER):
            raise QueryError(f"{name}: expected a number, found a {kind}")
        if any("." in field for field in fields_of(found)):
            raise QueryError(f"{name}: expected an expression over the reading's own fields")
        call = History(
            Past(name, _size(name, node), scope.zone if name.startswith("seasonal") else "UTC"),
            found,
        )
        if call not in self.calls:
            self.calls.append(call)
        if len(self.calls) > CALLS_MAX:
            raise QueryError(
                f"{name}: expected at most {CALLS_MAX} different calls of functions of the "
                "readings before"
            )
        return Field(f".{self.calls.index(call)}"), NUMBER


def _size(name: str, node: exp.Expr) -> int:
    second = node.expressions[1]
    text = str(second.this) if isinstance(second, exp.Literal) else ""
    if (
        name == "robust_zscore"
        and text.isdigit()
        and not second.is_string
        and VALUES_MIN <= int(text) <= VALUES_MAX
    ):
        return int(text)
    if (
        name == "trend"
        and text
        and second.is_string
        and 1 <= (size := duration_ms(text, name)) <= TIME_MS_MAX
    ):
        return size
    if name.startswith("seasonal") and text in HOURS:
        return HOURS[text]
    raise QueryError(f"{sql_of(node)}: expected {FUNCTIONS[name]}")
