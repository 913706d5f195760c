"""What a question may be, and what it cannot do even if it is let through."""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.lake import checks
from edgewake.cloud.lake.answer import close, engine
from edgewake.cloud.lake.question import is_question
from edgewake.cloud.lake.shape import quoted
from edgewake.cloud.queries import advice
from edgewake.protocol.errors import QueryError
from tests.examples import examples


def tables_of(db: duckdb.DuckDBPyConnection, sql: str) -> dict[str, int]:
    return checks.tables_of(sql, checks.tree_of(db, sql))


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with engine() as connection:
        yield connection


def test_a_list_in_a_payload_is_taken_apart_as_the_queries_advice_says(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """A payload's list is kept as JSON text."""
    function = re.search(r"unnest\(.*\)\)", advice.FUNCTIONS["unnest"])
    assert function is not None
    item = function[0].replace("list", "topics")
    sql = f"SELECT item, count(*) AS n FROM (SELECT {item} AS item FROM m) GROUP BY item ORDER BY n"
    assert set(tables_of(db, sql)) == {"m"}
    db.execute("CREATE TABLE m (topics VARCHAR)")
    for topics in (["art", "music"], ["music"], [], ["music", "chess", "art"]):
        db.execute("INSERT INTO m VALUES (?)", [orjson.dumps(topics).decode()])
    db.execute("INSERT INTO m VALUES (NULL)")
    assert db.sql(sql).fetchall() == [("chess", 1), ("art", 2), ("music", 3)]


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1", {}),
        ("-- a comment\nFROM s", {"s": 18}),
        ("SELECT * FROM s, S2 JOIN range(3) r ON true", {"s": 14, "s2": 17}),
        ("WITH a AS (FROM b) SELECT *, (SELECT max(x) FROM c) FROM a", {"b": 16, "c": 49}),
        ("WITH a AS (FROM a), b AS (FROM a) FROM b", {"a": 16}),
        ("FROM (WITH a AS (SELECT 1) FROM a) x, a", {"a": 38}),
        ("WITH a AS (SELECT 1) FROM (WITH b AS (FROM a) FROM b) UNION FROM b", {"b": 65}),
        (
            "FROM Summaries.Hour, summaries.day d, s",
            {"summaries.hour": 5, "summaries.day": 21, "s": 38},
        ),
        ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) FROM r", {}),
    ],
)
def test_a_select_names_its_streams(
    db: duckdb.DuckDBPyConnection, sql: str, tables: dict[str, int]
) -> None:
    assert is_question(sql)
    assert tables_of(db, sql) == tables


HOSTILE = (
    "FROM read_csv('/etc/passwd')", "FROM read_text('/etc/passwd')", "FROM glob('/*')",
    "FROM read_parquet('x')", "FROM sniff_csv('x')",
    "FROM query('SELECT 1')", "FROM query_table('s')", "FROM duckdb_settings()",
    "FROM information_schema.tables", "FROM main.s",
    "FROM memory.summaries.hour", "FROM summaries.read_csv('x')",
    "SELECT current_setting('allowed_paths')", "SELECT getenv('HOME')", "SELECT 1; SELECT 2",
    "SELECT", "SELECT (", "",
    "COPY (SELECT 1) TO '/tmp/x'", "ATTACH 'x'", "INSTALL httpfs", "LOAD httpfs", "PRAGMA version",
    "SET threads = 1", "CALL range(1)",
    "CREATE TABLE x AS SELECT 1", "INSERT INTO s VALUES (1)",
    "WITH x AS (INSERT INTO s VALUES (1) RETURNING a) FROM x", "DELETE FROM s",
    "EXPORT DATABASE 'x'", "EXPLAIN SELECT 1", "DESCRIBE s", "SHOW TABLES", "SUMMARIZE s",
    "FROM (DESCRIBE s)", "VACUUM", "USE x",
    'select * from (with "/x.csv" as (select 1) select 1) a, "/x.csv"',
    'WITH "https://x/y.parquet" AS (SELECT 1) SELECT 1',
    "WITH duckdb_views AS (SELECT 1) FROM duckdb_views", "WITH pg_settings AS (SELECT 1) SELECT 1",
    "SELECT pg_sleep(1)", "SELECT sleep_ms(1)",
    "SELECT current_database()", "SELECT current_query()", "SELECT version()",
    "SELECT write_log('x')",
    "SELECT txid_current()", "SELECT getvariable('x')", "SELECT json_serialize_plan('FROM s')",
    "SELECT has_table_privilege('s', 'SELECT')",
    "SELECT inet_server_port()", "SELECT pg_get_viewdef(1)",
    "FROM s WHERE in_search_path('a', 'b')", "SELECT a.current_setting()",
    "SELECT " + "(" * 5000 + "1" + ")" * 5000, "SELECT " + "NOT " * 600 + "true",
    "SELECT " + "1 + " * 900 + "1",
)  # fmt: skip


@pytest.mark.parametrize("sql", HOSTILE, ids=lambda sql: sql[:40])
def test_what_is_no_question_is_refused(db: duckdb.DuckDBPyConnection, sql: str) -> None:
    with pytest.raises(QueryError):
        tables_of(db, sql)


OWN = ("a", "b", "c", "Ä_1")
FOREIGN = (
    "/etc/passwd",
    "x.csv",
    "duckdb_views",
    "pg_settings",
    "duckdb_databases",
    "duckdb_logs",
    "sqlite_master",
    "tables",
)


def names() -> st.SearchStrategy[str]:
    return st.sampled_from([*OWN, *FOREIGN]).map(lambda name: f'"{name}"')


def selects(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    one = st.one_of(names(), inner.map(lambda sql: f"({sql})"))
    listed = st.lists(one, min_size=1, max_size=3).map(
        lambda parts: ", ".join(f"{part} t{i}" for i, part in enumerate(parts))
    )
    common = st.lists(st.tuples(names(), inner), max_size=3).map(
        lambda found: ", ".join(f"{name} AS ({sql})" for name, sql in found)
    )
    scalar = st.one_of(st.just("1"), inner.map(lambda sql: f"EXISTS ({sql})"))
    union = st.one_of(st.just(""), inner.map(lambda sql: f" UNION ALL ({sql})"))
    return st.tuples(
        st.sampled_from(["WITH ", "WITH RECURSIVE "]), common, scalar, listed, union
    ).map(
        lambda part: (
            f"{part[0] + part[1] if part[1] else ''} SELECT {part[2]} FROM {part[3]}{part[4]}"
        )
    )


@settings(max_examples=examples(100), deadline=None)
@given(st.recursive(names().map(lambda name: f"SELECT 1 FROM {name}"), selects, max_leaves=6))
def test_what_passes_reads_the_streams_that_it_names_and_nothing_else(sql: str) -> None:
    """The engine says itself what a text reads, as its binder sees WITH; no name of its own or of a
    file is ever taken for one of WITH.
    """
    with engine() as db:
        try:
            found = tables_of(db, sql)
            bound = {name.casefold() for name in db.get_table_names(sql)}
        except (QueryError, duckdb.Error):
            return
        assert bound <= set(found)
        for name in found:
            db.execute(f"CREATE TABLE {quoted(name)} AS SELECT 1 AS x")
        close(db, [])
        try:
            plan = str(db.execute(f"EXPLAIN {sql}").fetchall())
        except duckdb.Error:
            return
    assert not re.search("DUCKDB_|PRAGMA_|READ_", plan)


def test_the_plan_of_a_text_that_reads_the_engine_would_tell(db: duckdb.DuckDBPyConnection) -> None:
    """The control of the test above."""
    for name in ("duckdb_views", "pg_settings", "duckdb_logs"):
        assert re.search(
            "DUCKDB_|PRAGMA_|READ_", str(db.execute(f"EXPLAIN FROM {name}").fetchall())
        )


def test_a_refusal_says_line_and_column(db: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(QueryError, match=r"line 2:7: read_csv: in FROM stand streams"):
        tables_of(db, "SELECT 'ä'\n FROM read_csv('x')")
    with pytest.raises(QueryError, match="line 2:6: syntax error"):
        tables_of(db, "SELECT *\n FRM b WHERE x")
