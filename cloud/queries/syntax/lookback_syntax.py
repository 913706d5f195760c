"""Functions of a device's readings before, as a query file writes them.

From sqlglot's tree to `History`. Pure.

    robust_zscore(temperature, 60)         by the 60 values before this one: median and median
                                           absolute deviation
    trend(temperature, '10 minutes')       slope per second of the last ten minutes
    seasonal_baseline(load, 'day')         the mean in the same hour of the day; 'week': of the week
    seasonal_zscore(load, 'week')          this one's distance from it in standard deviations
    seen_before(card)                      did the device have the value before?
    seen_before(card, '1 day', 5000, 0.001)
    seen_before_by_anyone(card, '1 day')   did any device?

Each becomes a name with a point before it (`.0`), which no field has: the driver fills it in
(table_join_job).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from edgewake.cloud.queries.query import History
from edgewake.cloud.queries.syntax.window_syntax import duration_ms
from edgewake.cloud.queries.terms.calls import Typed
from edgewake.cloud.queries.terms.expressions import Scope, sql_of, translate
from edgewake.cloud.queries.terms.functions import BOOLEAN, NUMBER, STRING
from edgewake.cloud.queries.terms.lookback import HOURS, SEEN, VALUES_MAX, Past
from edgewake.cloud.queries.terms.tree import Field, fields_of
from edgewake.protocol.errors import QueryError
from edgewake.protocol.sketches import seen
from edgewake.protocol.sketches.seen import Seen

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
    **{
        name: f"{name}(x, '1 day', {seen.CAPACITY}, {seen.ERROR}): x and, each or none, the time "
        f"from a second to 366 days after which a value is forgotten, how many values are "
        f"remembered ({seen.CAPACITY_MIN} to {seen.CAPACITY_MAX}), and how often a new one may be "
        f"taken for seen ({seen.ERROR_MIN} to {seen.ERROR_MAX})"
        for name in SEEN
    },
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
        is_seen = name in SEEN
        if len(node.expressions) not in (range(1, 5) if is_seen else (2,)):
            raise QueryError(f"{sql_of(node)}: expected {FUNCTIONS[name]}")
        found, kind = translate(node.expressions[0], scope, name)
        takes = (None, NUMBER, STRING, BOOLEAN) if is_seen else (None, NUMBER)
        if kind not in takes:
            expected = "a number, a text or a boolean" if is_seen else "a number"
            raise QueryError(f"{name}: expected {expected}, found a {kind}")
        if any("." in field for field in fields_of(found)):
            raise QueryError(f"{name}: expected an expression over the reading's own fields")
        if is_seen:
            memory = _seen(name, node)
            past = Past(name, memory.capacity, seen=memory)
        else:
            zone = scope.zone if name.startswith("seasonal") else "UTC"
            past = Past(name, _size(name, node), zone)
        call = History(past, found)
        if call not in self.calls:
            self.calls.append(call)
        if len(self.calls) > CALLS_MAX:
            raise QueryError(
                f"{name}: expected at most {CALLS_MAX} different calls of functions of the "
                "readings before"
            )
        return Field(f".{self.calls.index(call)}"), BOOLEAN if is_seen else NUMBER


def _seen(name: str, node: exp.Expr) -> Seen:
    """What is remembered, of the literals after the first argument. Raises QueryError."""
    left = list(node.expressions[1:])
    if not all(isinstance(one, exp.Literal) for one in left):
        raise QueryError(f"{sql_of(node)}: expected {FUNCTIONS[name]}")
    forget_ms = None
    if left and left[0].is_string:
        forget_ms = duration_ms(str(left.pop(0).this), name)
    numbers = [str(one.this) for one in left if not one.is_string]
    capacity = numbers[0] if numbers else str(seen.CAPACITY)
    error = float(numbers[1]) if len(numbers) > 1 else seen.ERROR
    if (
        len(numbers) < len(left)
        or len(numbers) > 2
        or not capacity.isdigit()
        or not seen.CAPACITY_MIN <= int(capacity) <= seen.CAPACITY_MAX
        or not seen.ERROR_MIN <= error <= seen.ERROR_MAX
        or not (forget_ms is None or seen.FORGET_MS_MIN <= forget_ms <= seen.FORGET_MS_MAX)
    ):
        raise QueryError(f"{sql_of(node)}: expected {FUNCTIONS[name]}")
    return Seen(int(capacity), error, forget_ms)


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
