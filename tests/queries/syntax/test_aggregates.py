"""An aggregate has its name, its reader and its row for users: each step of the recipe "A new
aggregate" of ARCHITECTURE.md that no value shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
import sqlglot

from edgewake.cloud.queries.syntax import aggregates
from edgewake.cloud.queries.terms.expressions import AGGREGATE_FUNCTIONS

DOC: Final = (Path(__file__).parents[3] / "docs/queries.md").read_text("utf-8")
ARGUMENTS: Final[Mapping[str, str]] = {
    "approx_percentile": "x, 0.5",
    "approx_top_k": "x, 3",
    "percentile": "x, 0.5",
    "count_if": "x > 1",
    "bool_and": "x > 1",
    "bool_or": "x > 1",
    **dict.fromkeys(
        ("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "min_by", "max_by"),
        "x, y",
    ),
}


def documented() -> set[str]:
    """What the table of aggregates names."""
    (rows,) = re.findall(r"\n(\| `count\(\*\)`.*?)\n\n", DOC, re.DOTALL)
    return {
        name for row in rows.splitlines() for name in re.findall(r"`(\w+)\(", row.split("|")[1])
    }


def test_the_table_for_users_names_exactly_what_there_is() -> None:
    assert documented() - {"array"} == set(AGGREGATE_FUNCTIONS), "array() is an argument"


@pytest.mark.parametrize("name", AGGREGATE_FUNCTIONS)
def test_each_name_has_a_reader(name: str) -> None:
    text = f"SELECT {name}({ARGUMENTS.get(name, 'x')})"
    node = sqlglot.parse_one(text, dialect="spark").expressions[0]
    assert type(node) in aggregates._READERS, type(node)


def test_each_reader_has_a_name() -> None:
    """So that somebody who misspells it is told of it."""
    read = {
        type(
            sqlglot.parse_one(
                f"SELECT {name}({ARGUMENTS.get(name, 'x')})", dialect="spark"
            ).expressions[0]
        )
        for name in AGGREGATE_FUNCTIONS
    }
    others = {"FirstValue", "LastValue", "AnyValue", "StddevSamp", "WithinGroup"}
    assert {one.__name__ for one in set(aggregates._READERS) - read} <= others
