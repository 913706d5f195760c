"""Windows that conditions decide, as a query file writes them in GROUP BY. Pure.

threshold_window(temperature > 80, temperature < 75, '30 seconds')   active when it has held so
                                                                     long, over when the second is
                                                                     true
pattern_window('10 minutes', door_open, temperature < 4, power = 0)   one after the other, each by a
                                                                      reading of its own
absence_window(event_time, '5 minutes')                              no reading for so long
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sqlglot import exp

from edgewake.cloud.queries.terms.expressions import sql_of
from edgewake.cloud.queries.terms.windows import Rule, Window
from edgewake.protocol.errors import QueryError

CONDITIONS_MAX: Final = 8
"""Conditions of a pattern."""
TIME_MS_MAX: Final = 7 * 86_400_000
"""The longest time of a pattern. What began is kept so long."""
PATTERNS: Final[Mapping[str, str]] = {
    "threshold_window": (
        "threshold_window(temperature > 80[, temperature < 75][, '30 seconds']): begin, end, how "
        "long it must hold"
    ),
    "pattern_window": (
        "pattern_window('10 minutes', first condition, second condition, …): within a time, one "
        "after the other"
    ),
    "absence_window": "absence_window(event_time, '5 minutes'): no reading for so long",
}
"""Function → how it is written."""


def is_pattern(node: exp.Expr) -> bool:
    """Is it one of these windows?"""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in PATTERNS


def conditions(node: exp.Expr) -> list[exp.Expr]:
    """The conditions that decide a pattern's window."""
    if not is_pattern(node) or str(node.this).lower() == "absence_window":
        return []
    found = [one for one in node.expressions if not _is_length(one)]
    if str(node.this).lower() == "threshold_window" and len(found) == 1:
        found.append(exp.Not(this=exp.Paren(this=found[0].copy())))
    return found


def pattern(node: exp.Expr, length: Callable[[exp.Expr], int]) -> Window:
    """The window. `length`: ms of a literal. Raises QueryError."""
    name = str(node.this).lower()
    arguments: Sequence[exp.Expr] = node.expressions
    lengths = [length(one) for one in arguments if _is_length(one)]
    others = len(arguments) - len(lengths)
    is_written = {
        "threshold_window": 1 <= others <= 2 and len(lengths) <= 1,
        "pattern_window": 2 <= others <= CONDITIONS_MAX and len(lengths) == 1,
        "absence_window": len(lengths) == 1 and others == 1 and arguments[0].name == "event_time",
    }
    if not is_written[name]:
        raise QueryError(f"GROUP BY {sql_of(node)}: expected {PATTERNS[name]}")
    if any(not 1 <= one <= TIME_MS_MAX for one in lengths):
        raise QueryError(f"GROUP BY {sql_of(node)}: expected a time from 1 millisecond to 7 days")
    if name == "threshold_window":
        return Window(
            size_ms=1, slide_ms=1, rule=Rule.THRESHOLD, for_ms=lengths[0] if lengths else 0
        )
    return Window(
        size_ms=1,
        slide_ms=1,
        rule=Rule.SUCCESSION if name == "pattern_window" else Rule.ABSENCE,
        within_ms=lengths[0],
    )


def _is_length(node: exp.Expr) -> bool:
    return isinstance(node, exp.Interval) or (
        isinstance(node, exp.Literal) and bool(node.is_string)
    )
