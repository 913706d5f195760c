"""Calls have a type, or an argument has the wrong one."""

from __future__ import annotations

import pytest

from edgewake.cloud.queries.terms.calls import Typed, call
from edgewake.cloud.queries.terms.functions import BOOLEAN, NUMBER, STRING
from edgewake.cloud.queries.terms.tree import Call, Field
from edgewake.protocol.errors import QueryError

X: Typed = (Field("x"), NUMBER)
S: Typed = (Field("s"), STRING)
U: Typed = (Field("u"), None)
"""One of a stream that nobody knows yet."""


@pytest.mark.parametrize(
    ("function", "arguments", "kind"),
    [
        ("+", (X, X), NUMBER),
        ("lower", (S,), STRING),
        ("=", (S, S), BOOLEAN),
        ("=", (S, U), BOOLEAN),
        ("concat", (S, S, S), STRING),
        ("coalesce", (U, X), NUMBER),
        ("coalesce", (U, U), None),
    ],
)
def test_a_call_has_the_type_that_its_arguments_give(
    function: str, arguments: tuple[Typed, ...], kind: object
) -> None:
    made = Call(function, tuple(one for one, _ in arguments))
    assert call(function, arguments, "SELECT") == (made, kind)


@pytest.mark.parametrize(
    ("function", "arguments", "why"),
    [
        ("+", (X, S), "SELECT: \\+ takes a number, found a string"),
        ("=", (X, S), "= compares a number with a string"),
        ("concat", (S, X), r"found a number; use cast\(x AS string\)"),
    ],
)
def test_an_argument_of_another_type_is_refused(
    function: str, arguments: tuple[Typed, ...], why: str
) -> None:
    with pytest.raises(QueryError, match=why):
        call(function, arguments, "SELECT")
