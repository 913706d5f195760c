"""`where=` and `select=`: the meaning is SQL's (SQLite is the reference), the cost is bounded, and a refusal has a reason."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.log.filter import compile_select, compile_where
from edgewake.protocol.errors import FilterError

NUMBERS = ("a", "b")
STRINGS = ("s", "u")
WORDS = ("", "a", "A", "ab", "Ab%", "a_c", "abc", "é")

integers = st.integers(-5, 5)
halves = st.integers(-9, 9).map(lambda n: n / 2)
rows = st.fixed_dictionaries(
    {},
    optional={name: integers | halves | st.none() for name in NUMBERS} | {name: st.sampled_from(WORDS) | st.none() for name in STRINGS},
)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


literals = integers.map(lambda n: f"({n})") | halves.map(lambda n: f"({n})") | st.just("NULL")
text_literals = st.sampled_from(WORDS).map(quoted) | st.just("NULL")
patterns = st.text("aAb%_", max_size=5).map(quoted)


def numbers_of(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(children, st.sampled_from("+-*"), children).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
    unary = children.map(lambda c: f"abs({c})") | children.map(lambda c: f"(- {c})")
    return binary | unary | st.tuples(children, children).map(lambda t: f"coalesce({t[0]}, {t[1]})")


number = st.recursive(st.sampled_from(NUMBERS) | literals, numbers_of, max_leaves=4)
text = st.sampled_from(STRINGS) | text_literals | st.sampled_from(STRINGS).map(lambda s: f"lower({s})")
operators = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
comparison = (
    st.tuples(number, operators, number).map(" ".join)
    | st.tuples(text, operators, text).map(" ".join)
    | st.tuples(number, number, number).map(lambda t: f"{t[0]} BETWEEN {t[1]} AND {t[2]}")
    | st.tuples(number, st.lists(literals, min_size=1, max_size=3)).map(lambda t: f"{t[0]} IN ({', '.join(t[1])})")
    | st.tuples(number, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join)
    | st.tuples(st.sampled_from(STRINGS), st.sampled_from(["LIKE", "NOT LIKE"]), patterns).map(" ".join)
    | st.sampled_from(STRINGS).map(lambda s: f"length({s}) > 1")
)
condition = st.recursive(
    comparison.map("({})".format),
    lambda c: st.tuples(c, st.sampled_from(["AND", "OR"]), c).map("({0[0]} {0[1]} {0[2]})".format) | c.map("(NOT {})".format),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def reference() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    return connection


def by_sqlite(connection: sqlite3.Connection, where: str, row: dict[str, Any]) -> bool:
    names = NUMBERS + STRINGS
    columns = ", ".join(f"? AS {name}" for name in names)
    found = connection.execute(f"SELECT 1 FROM (SELECT {columns}) WHERE {where}", [row.get(name) for name in names])
    return found.fetchone() is not None


@given(condition, rows)
@settings(max_examples=600, deadline=None)
def test_a_condition_passes_the_rows_that_sqlite_passes(reference: sqlite3.Connection, where: str, row: dict[str, Any]) -> None:
    assert compile_where(where)(row) is by_sqlite(reference, where, row)


@given(st.text("()'\"`;-*/=<>!,.%_ andornotliketinbetween0123456789x\n\0é", max_size=120))
@settings(max_examples=500, deadline=None)
def test_any_text_is_compiled_or_refused_and_nothing_else(text: str) -> None:
    for compile_ in (compile_where, compile_select):
        with contextlib.suppress(FilterError):
            compile_(text)({"x": 1})


@pytest.mark.parametrize(
    ("where", "row", "passes"),
    [
        ("final", {"final": True}, True),
        ("final", {"final": 1}, False),
        ("final = TRUE", {"final": True}, True),
        ("not final", {}, False),
        ("missing = 1 OR device = 'x'", {"device": "x"}, True),
        ("missing <> 1", {}, False),
        ("speed > '5'", {"speed": 10}, False),
        ("speed / 0 IS NULL", {"speed": 10}, True),
        ("speed / 4 = 2.5", {"speed": 10}, True),
        ("round(speed) = 3", {"speed": 2.5}, True),
        ("seq = 9007199254740993", {"seq": 9007199254740993}, True),
        ("seq = 9007199254740992", {"seq": 9007199254740993}, False),
        ("name LIKE '100!%' ESCAPE '!'", {"name": "100%"}, True),
        ("name ILIKE 'MAIN%'", {"name": "Main street"}, True),
        ('"T" = 1', {"T": 1}, True),
        ("starts_with(device, 'car-')", {"device": "car-7"}, True),
        ("nullif(speed, 0) IS NULL", {"speed": 0}, True),
    ],
)
def test_a_condition_means_what_it_says(where: str, row: dict[str, Any], passes: bool) -> None:
    assert compile_where(where)(row) is passes


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("", "is empty"),
        ("speed >", "at character"),
        ("speed = = 1", "near '='"),
        ("foo(speed)", "functions are abs"),
        ("speed > (SELECT 1)", "not allowed"),
        ("speed = 1; DROP TABLE x", "near 'DROP'"),
        ("1 UNION SELECT 2", "near 'UNION'"),
        ("CASE WHEN speed THEN 1 END", "not allowed"),
        ("CAST(speed AS INT) = 1", "not allowed"),
        ("a LIKE b", "pattern in quotes"),
        ("x LIKE '" + "%a" * 200 + "'", "expected at most 256"),
        ("t.speed = 1", "name of a field"),
        ("x = 1e999", "out of range"),
        ("'unfinished", "cannot be read"),
        ("x" * 1025, "1025 bytes"),
        (" AND ".join(["a = 1"] * 26), "more than 50"),
        ("(" * 400 + "a" + ")" * 400, "nested too deep"),
        ("NOT " * 12 + "a", "nested deeper"),
        ("name LIKE 'a!' ESCAPE '!'", "ends with the ESCAPE"),
    ],
)
def test_what_is_refused_says_what_and_where(where: str, why: str) -> None:
    with pytest.raises(FilterError, match=why.replace("(", r"\(")):
        compile_where(where)


@pytest.mark.parametrize("select", ["a + 1", "a, a", "a FROM b", "DISTINCT a", "count(*) AS n", "* EXCEPT (a)", "a ORDER BY 1", "SELECT a"])
def test_a_select_is_a_list_of_named_columns_and_nothing_more(select: str) -> None:
    with pytest.raises(FilterError, match="select"):
        compile_select(select)


def test_a_select_gives_its_columns_in_order_and_null_for_what_is_missing() -> None:
    project = compile_select("device, speed / 4 AS quarter, gone")
    assert list(project({"speed": 10, "device": "d", "n": 1}).items()) == [("device", "d"), ("quarter", 2.5), ("gone", None)]


@pytest.mark.parametrize("pattern", ["%a_" * 20 + "b", "a" * 128 + "%" + "_" * 100, "%" * 256, "_%" * 128])
def test_no_pattern_costs_much_on_the_longest_string(pattern: str) -> None:
    """8192 characters are the longest a field may have (protocol.frame); fifty such matches still take under a second."""
    passes = compile_where(f"s LIKE '{pattern}'")
    began = time.process_time()
    passes({"s": "a" * 8192})
    assert time.process_time() - began < 0.1
