"""What a question may be, and what it cannot do even if it is let through."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.lake.allowed_functions import NAMED
from edgewake.cloud.lake.answer import bind, close, engine, execute, rows_of
from edgewake.cloud.lake.asking import Asking
from edgewake.cloud.lake.checks import tables_of
from edgewake.cloud.lake.files import Disk
from edgewake.cloud.lake.manifest import File
from edgewake.cloud.lake.present import Present
from edgewake.cloud.lake.question import is_question
from edgewake.cloud.lake.shape import ColumnType, Kind, quoted
from edgewake.cloud.lake.sources import Source
from edgewake.cloud.queries import advice
from edgewake.protocol.errors import QueryError

NUMBER, STRING = ColumnType.NUMBER, ColumnType.STRING


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


def test_only_functions_that_the_engine_has_are_allowed_and_none_that_looks_at_it(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """A new version of the engine brings functions; each is refused until somebody looked at it."""
    kinds = "('scalar', 'aggregate', 'macro', 'window')"
    found = db.execute(
        "SELECT DISTINCT lower(function_name) FROM duckdb_functions() WHERE function_type IN "
        f"{kinds}"
    ).fetchall()
    assert {name for (name,) in found} >= NAMED
    assert not {
        name
        for name in NAMED
        if name.startswith(
            ("pg_", "has_table", "current_s", "duckdb_", "__internal", "sleep", "inet_")
        )
    }


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


@settings(max_examples=100, deadline=None)
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


def test_a_text_of_comments_alone_costs_no_more_than_its_length() -> None:
    """The operations API looks at it in its own process: one of 60 characters took days."""
    assert not is_question("/**/" * 4_900 + "x")
    assert not is_question("/*" * 9_000)
    assert is_question("/* a */ -- b\n (" * 1_000 + "SELECT 1")


def test_a_refusal_says_line_and_column(db: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(QueryError, match=r"line 2:7: read_csv: in FROM stand streams"):
        tables_of(db, "SELECT 'ä'\n FROM read_csv('x')")
    with pytest.raises(QueryError, match="line 2:6: syntax error"):
        tables_of(db, "SELECT *\n FRM b WHERE x")


def files(
    folder: Path, *tables: tuple[dict[str, list[object]], dict[str, ColumnType]]
) -> list[File]:
    base = {
        "device": ["d"],
        "t": pa.array([0], pa.timestamp("ms")),
        "received_at": pa.array([0], pa.timestamp("ms")),
    }
    base |= {"sent_at": pa.array([None], pa.timestamp("ms"))}
    base |= {"epoch": [1], "seq": [1], "@partition": [0], "@offset": [0]}
    source = Source("ew.s.s", Kind.STREAM, "s")
    return [
        Disk(folder).write(pa.table(base | values), source, "2026-11-22", fields, now_ms=i)
        for i, (values, fields) in enumerate(tables)
    ]


def test_files_of_different_fields_and_types_are_one_table(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    old = ({"a": ["x"]}, {"a": STRING})
    new = ({"a": [1.5], "b": [True]}, {"a": NUMBER, "b": ColumnType.BOOLEAN})
    bind(
        db, "s", Source("ew.s.s", Kind.STREAM, "s"), files(tmp_path, old, new), Present(), tmp_path
    )
    assert db.execute('SELECT a, b, "a@string" FROM s ORDER BY a NULLS FIRST').fetchall() == [
        (None, None, "x"),
        (1.5, True, None),
    ]


def test_what_passes_the_check_still_reaches_no_file_and_no_setting(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """The second wall, and the control that shows that only it stands in the way."""
    other = tmp_path / "other.csv"
    other.write_text("a\n1\n")
    attack = f"FROM read_csv('{other}')"
    assert db.execute(attack).fetchall() == [(1,)]
    kept = files(tmp_path, ({"a": [1.5]}, {"a": NUMBER}))
    bind(db, "s", Source("ew.s.s", Kind.STREAM, "s"), kept, Present(), tmp_path)
    close(db, [str(tmp_path / file.path) for file in kept])
    assert db.execute("SELECT a FROM s").fetchall() == [(1.5,)]
    for sql in (
        attack,
        f"FROM '{other}'",
        f"COPY s TO '{tmp_path}/x'",
        f"ATTACH '{tmp_path}/y'",
        "INSTALL httpfs",
        "SET threads = 1",
    ):
        with pytest.raises(
            (duckdb.PermissionException, duckdb.CatalogException, duckdb.InvalidInputException)
        ):
            db.execute(sql)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.csv", "stream=s"]


@pytest.mark.parametrize(
    ("sql", "seconds", "why"),
    [
        ("SELECT length(repeat('x', 2000000000))", 60.0, "needs more memory"),
        (
            "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % "
            "7 = 1",
            0.5,
            "not done within 0.5 s",
        ),
    ],
)
async def test_a_question_that_takes_too_much_ends_alone(
    tmp_path: Path, sql: str, seconds: float, why: str
) -> None:
    with pytest.raises(QueryError, match=why):
        await Asking(tmp_path, KafkaConfig()).ask({"sql": sql, "rows": 10, "seconds": seconds})


@pytest.mark.parametrize(
    "sql", ["SELECT INTERVAL '2000000000 days'", "SELECT " + "[" * 300 + "1" + "]" * 300]
)
def test_a_value_that_nobody_can_show_is_refused_as_the_questions_fault(
    db: duckdb.DuckDBPyConnection, sql: str
) -> None:
    with pytest.raises(QueryError, match="cast it to VARCHAR"):
        rows_of(db.execute(sql), 3)


def test_the_present_moment_is_one_of_utc_wherever_the_machine_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        with engine() as db:
            sql = (
                "SELECT now() AS a, now()::TIMESTAMP AS a, {'b': [now()]} AS c, timetz "
                "'12:00:00+01' AS d, 1 AS e; -- an end;"
            )
            shown, columns = execute(db, sql)
            (row,), _ = rows_of(shown, 3)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert [(column["name"], column["type"]) for column in columns] == [
        ("a", "TIMESTAMP"), ("a", "TIMESTAMP"), ("c", "STRUCT(b TIMESTAMP[])"), ("d", "VARCHAR"),
        ("e", "INTEGER")
    ]  # fmt: skip
    first, second, nested, zoned, one = orjson.loads(row)
    assert first == second == nested["b"][0]
    assert abs(datetime.fromisoformat(first) - datetime.now(UTC)) < timedelta(minutes=5), (
        "not five hours off"
    )
    assert (zoned, one) == ("12:00:00+01", 1)


def test_a_long_answer_is_cut_and_every_value_is_json(db: duckdb.DuckDBPyConnection) -> None:
    assert rows_of(db.execute("FROM range(10)"), 3) == ([b"[0]", b"[1]", b"[2]"], True)
    assert rows_of(db.execute("FROM range(3)"), 3)[1] is False
    values = (
        "1.5::DECIMAL(4,1), 'nan'::DOUBLE, 2::HUGEINT ** 70, "
        "170141183460469231731687303715884105727, '\\xAB'::BLOB"
    )
    times = (
        "TIMESTAMP '2026-11-22 10:00:00', DATE '2026-11-22', INTERVAL 90 SECOND, [1, NULL], {'a': "
        "DATE '2026-01-01'}, MAP {1: 'x'}, uuid()"
    )
    (row,), _ = rows_of(db.execute(f"SELECT {values}, {times}"), 3)
    found = orjson.loads(row)
    assert found[:2] == [1.5, None]
    assert found[3:5] == ["170141183460469231731687303715884105727", "ab"]
    assert found[5:11] == [
        "2026-11-22T10:00:00Z",
        "2026-11-22",
        90.0,
        [1, None],
        {"a": "2026-01-01"},
        {"1": "x"},
    ]
    assert len(found[11]) == 36
