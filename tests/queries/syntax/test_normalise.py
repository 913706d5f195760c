"""Filters in FROM and numbers of columns become the one form that the rest reads."""

from __future__ import annotations

import pytest

from edgewake.cloud.queries.query import Query
from edgewake.cloud.queries.query_file import parse, stream_of
from edgewake.cloud.queries.syntax.normalise import NESTED_MAX
from edgewake.protocol.errors import QueryError

PLAIN = "SELECT device AS d, a AS x FROM m WHERE {}"


def read(sql: str) -> Query:
    return parse(f"-- name: q\n{sql}")


def nested(depth: int) -> str:
    return "(SELECT * FROM " * depth + "m" + ") AS f" * depth


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT device AS d, a AS x FROM (SELECT * FROM m WHERE a > 1) WHERE b < 2",
        "SELECT f.device AS d, f.a AS x FROM (SELECT * FROM m AS q WHERE q.a > 1) f WHERE f.b < 2",
        "WITH f AS (SELECT * FROM m WHERE a > 1) SELECT device AS d, f.a AS x FROM f WHERE b < 2",
        "WITH m AS (SELECT * FROM m WHERE a > 1) SELECT device AS d, a AS x FROM m WHERE m.b < 2",
        "WITH f AS (SELECT * FROM m WHERE a > 1), g AS (SELECT * FROM f WHERE f.b < 2) "
        "SELECT g.device AS d, a AS x FROM g",
        f"SELECT device AS d, a AS x FROM {nested(NESTED_MAX)} WHERE a > 1 AND b < 2",
    ],
)
def test_a_filter_in_from_is_a_condition_of_the_query(sql: str) -> None:
    assert read(sql) == read(PLAIN.format("(a > 1) AND (b < 2)"))


def test_an_or_within_and_without_stays_in_its_brackets() -> None:
    inner = "SELECT * FROM m WHERE a > 1 OR b > 1"
    assert read(f"SELECT device AS d, a AS x FROM ({inner}) WHERE a < 9 OR b < 9") == read(
        PLAIN.format("(a > 1 OR b > 1) AND (a < 9 OR b < 9)")
    )


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT a AS x FROM (SELECT *)", "may only filter"),
        ("SELECT a AS x FROM (SELECT * WHERE 1 = 1) AS f", "may only filter"),
        ("WITH f AS (SELECT *) SELECT a AS x FROM f", "may only filter"),
        ("SELECT a AS x FROM (SELECT a FROM m)", "may only filter"),
        ("SELECT a AS x FROM (SELECT DISTINCT * FROM m)", "may only filter"),
        ("SELECT a AS x FROM (SELECT * FROM m LIMIT 3)", "may only filter"),
        ("SELECT a AS x FROM (SELECT *, a FROM m)", "may only filter"),
        ("WITH f AS (SELECT * FROM m), f AS (SELECT * FROM n) SELECT a AS x FROM f", "WITH"),
        ("WITH f AS (SELECT * FROM m) SELECT a AS x FROM m", "WITH"),
        (f"SELECT a AS x FROM {nested(NESTED_MAX + 1)}", "FROM: a subquery"),
        (f"SELECT a AS x FROM {nested(300)}", "nested too deep"),
    ],
)
def test_what_is_more_than_a_filter_is_refused(sql: str, said: str) -> None:
    with pytest.raises(QueryError, match=said):
        read(sql)


@pytest.mark.parametrize("inner", ["SELECT *", "SELECT * WHERE 1 = 1"])
def test_a_subquery_without_from_has_no_stream(inner: str) -> None:
    with pytest.raises(QueryError, match="expected one stream"):
        stream_of(f"-- name: q\nSELECT a AS x FROM ({inner})")


def test_a_cycle_of_common_tables_ends_at_a_stream() -> None:
    """Each common table is taken once: then its name is a stream's."""
    sql = "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT x AS y FROM a"
    assert stream_of(f"-- name: q\n{sql}") == "a"


def test_a_number_is_the_column_that_it_counts() -> None:
    numbers = "SELECT device AS d, count(*) AS n FROM m GROUP BY {}, window(event_time, '1 minute')"
    assert read(numbers.format("1")) == read(numbers.format("d"))
    limited = "SELECT device, count(*) AS n FROM m GROUP BY 1, window(event_time, '1 minute') {}"
    assert read(limited.format("ORDER BY 2 DESC LIMIT 3")) == read(
        limited.format("ORDER BY n DESC LIMIT 3")
    )


@pytest.mark.parametrize("number", ["0", "3", "1.5", "1e0", "99999999999999999999"])
@pytest.mark.parametrize("clause", ["GROUP BY", "ORDER BY"])
def test_a_number_of_no_column_is_refused_with_its_clause(clause: str, number: str) -> None:
    group, order = (number, "n") if clause == "GROUP BY" else ("device", number)
    with pytest.raises(QueryError, match=f"{clause} {number}: expected the number of a column"):
        read(
            f"SELECT device, count(*) AS n FROM m GROUP BY {group}, window(event_time, '1 minute') "
            f"ORDER BY {order} LIMIT 3"
        )
