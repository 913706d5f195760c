"""HAVING that no row passes: each row has a reading at least."""

from __future__ import annotations

import pytest

from edgewake.cloud.queries.syntax.having import is_never
from edgewake.cloud.queries.terms.tree import Call, Expression, Field, Literal

N, X = Field("n"), Field("x")


def compared(sign: str, value: float, *, mirrored: bool = False) -> Call:
    sides: tuple[Expression, ...] = (Literal(value), N) if mirrored else (N, Literal(value))
    return Call(sign, sides)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (compared("=", 0), True),
        (compared("<", 1), True),
        (compared("<=", 0.5), True),
        (compared(">", 1, mirrored=True), True),
        (compared(">=", 0, mirrored=True), True),
        (compared("<", 1.5), False),
        (compared("<=", 1), False),
        (compared(">", 0), False),
        (compared("<", 0, mirrored=True), False),
        (Call("=", (X, Literal(0))), False),
        (Call("and", (compared(">", 5), compared("<", 1))), True),
        (Call("or", (compared(">", 5), compared("<", 1))), False),
        (Call("or", (compared("=", 0), compared("<", 1))), True),
        (Call("not", (compared(">", 0),)), False),
    ],
)
def test_a_count_is_a_whole_number_from_one_on(condition: Call, *, expected: bool) -> None:
    assert is_never(condition, {"n"}) is expected
