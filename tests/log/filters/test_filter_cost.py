"""What a condition may cost, and what it does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from edgewake.cloud.log.filters.filter import compile_node, compile_select, compile_where
from edgewake.cloud.log.filters.filter_cost import COST_MAX, cost
from edgewake.cloud.log.filters.filter_syntax import parse_where
from edgewake.protocol.errors import FilterError
from tests.examples import examples
from tests.log.filters.strategies import (
    condition,
    rows,
)


def test_a_list_costs_one_look_up_however_long_it_is() -> None:
    """It was refused above 49 values, and cost a comparison for each."""
    names = [f"vehicle-{n:05d}" for n in range(1000)]
    where = compile_where("device IN (" + ", ".join(f"'{name}'" for name in names) + ")")
    assert where.cost < 10
    assert where.passes({"device": names[-1]})
    assert not where.passes({"device": "vehicle-01000"})


def nested(shape: str, depth: int) -> str:
    text = "n"
    for _ in range(depth):
        text = f"({text} {shape})"
    return text


@given(condition, rows)
@settings(max_examples=examples(300), deadline=None)
def test_the_cost_bounds_the_steps_that_are_executed(where: str, row: dict[str, Any]) -> None:
    tree = parse_where(where)
    steps: list[int] = []
    compile_node(tree, steps.append)(row)
    assert sum(steps) <= cost(tree)


@pytest.mark.parametrize(
    "shape", ["IN (1, 2, 3, 4, 5)", "BETWEEN 1 AND 2", "IN (n, n, n)", "= n", "IS NULL"]
)
def test_nesting_adds_to_the_cost_and_does_not_multiply_it(shape: str) -> None:
    """IN evaluated its left side once for each item: nine levels of five took a second an event."""
    steps: list[int] = []
    compile_node(parse_where(nested(shape, 9)), steps.append)({"n": 9.0})
    assert sum(steps) <= cost(parse_where(nested(shape, 9))) <= 200


@pytest.mark.parametrize(
    "where",
    [
        " OR ".join(f"s ILIKE '%_{'a' * 120}b%'" for _ in range(7)),
        "s LIKE '%a_" + "a" * 200 + "%'",
        "s LIKE '" + "%a_" * 20 + "%' OR s LIKE '%" + "_" * 60 + "%'",
    ],
)
def test_a_filter_that_would_cost_too_much_is_refused_with_what_it_costs(where: str) -> None:
    with pytest.raises(
        FilterError,
        match=r"costs \d+ steps an event at worst, expected at most 10000; the most "
        r"expensive are LIKE patterns with _",
    ):
        compile_where(where)


def test_a_select_has_the_same_bound() -> None:
    with pytest.raises(FilterError, match="select: costs"):
        compile_select(", ".join(f"s LIKE '%a_{'a' * 20}%' AS c{i}" for i in range(9)))


@pytest.mark.parametrize(
    "where",
    [
        "s ILIKE '%main street%' OR s ILIKE '%side street%' OR s LIKE 'car-__'",
        " AND ".join(["n = 1"] * 25),
    ],
)
def test_what_people_ask_is_cheap(where: str) -> None:
    assert compile_where(where).cost < COST_MAX / 10
