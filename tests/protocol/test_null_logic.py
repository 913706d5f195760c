"""One meaning of NULL in all three places that evaluate conditions: a device's expressions, a
client's filter, a query. SQLite decides.

Each evaluates in its own way (over values, over an event with counted steps, over a row), so each
has its own few lines of it.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from edgewake.cloud.log.filters.filter import compile_node
from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.cloud.queries.terms.evaluate import evaluated
from edgewake.cloud.queries.terms.tree import Call, Field
from edgewake.edge.processors.expression import compiled

Evaluate = Callable[[Sequence[Any]], Any]
TRUTHS = (True, False, None)
NUMBERS = (1, 2, 3, None)
PLACES = {"a": 0, "b": 1, "c": 2}
A, B, C = map(Field, PLACES)
CONDITIONS = {
    "a AND b": (TRUTHS, Call("and", (A, B))),
    "a OR b": (TRUTHS, Call("or", (A, B))),
    "a AND b AND c": (TRUTHS, Call("and", (A, B, C))),
    "a OR b OR c": (TRUTHS, Call("or", (A, B, C))),
    "NOT a": (TRUTHS, Call("not", (A,))),
    "a IN (b, c)": (NUMBERS, Call("in", (A, B, C))),
    "a NOT IN (b, c)": (NUMBERS, Call("not", (Call("in", (A, B, C)),))),
    "a BETWEEN b AND c": (NUMBERS, Call("between", (A, B, C))),
    "a NOT BETWEEN b AND c": (NUMBERS, Call("not", (Call("between", (A, B, C)),))),
    "a = b": (NUMBERS, Call("=", (A, B))),
    "a < b": (NUMBERS, Call("<", (A, B))),
}


def ways(text: str, call: Call) -> Iterator[tuple[str, Evaluate]]:
    """The condition in each place, as a function of a, b and c."""
    named = lambda row: {name: row[place] for name, place in PLACES.items()}  # noqa: E731
    on_device, in_filter = compiled(text.lower()), compile_node(parse_where(text))
    yield "device", lambda row: on_device((0, named(row)))
    yield "filter", lambda row: in_filter(named(row))
    yield "query", evaluated(call, PLACES)


@pytest.mark.parametrize("text", CONDITIONS)
def test_null_means_the_same_everywhere(text: str) -> None:
    values, call = CONDITIONS[text]
    rows = list(itertools.product(values, repeat=3))
    with closing(sqlite3.connect(":memory:")) as database:
        found = [
            database.execute(f"SELECT {text} FROM (SELECT ? AS a, ? AS b, ? AS c)", row).fetchone()[
                0
            ]
            for row in rows
        ]
    expected = [None if one is None else bool(one) for one in found]
    assert {True, False, None} <= set(expected)
    for place, evaluate in ways(text, call):
        assert [evaluate(row) for row in rows] == expected, place
