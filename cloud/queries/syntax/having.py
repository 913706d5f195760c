"""HAVING that no row passes: a window and group without readings has no row. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from edgewake.cloud.queries.terms.tree import Call, Expression, Field, Literal

_MIRRORED: Final[Mapping[str, str]] = {
    "=": "=",
    "<=>": "=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def is_never(condition: Expression, counts: Collection[str]) -> bool:
    """Is it false for every row? `counts`: names of count(*), which is a whole number from 1 on."""
    if not isinstance(condition, Call):
        return False
    if condition.function in ("and", "or"):
        parts = [is_never(one, counts) for one in condition.arguments]
        return any(parts) if condition.function == "and" else all(parts)
    return condition.function in _MIRRORED and _is_below_one(condition, counts)


def _is_below_one(comparison: Call, counts: Collection[str]) -> bool:
    left, right = comparison.arguments
    sign = _MIRRORED[_MIRRORED[comparison.function]]
    if isinstance(left, Literal):
        left, right, sign = right, left, _MIRRORED[comparison.function]
    if not (
        isinstance(left, Field)
        and left.name in counts
        and isinstance(right, Literal)
        and isinstance(right.value, int | float)
    ):
        return False
    return right.value <= 1 if sign == "<" else sign in ("=", "<=") and right.value < 1
