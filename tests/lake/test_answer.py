"""Answers to questions: tables of files, what they reach, and how values are shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import orjson
import pyarrow as pa
import pytest

from edgewake.cloud.lake.answer import bind, close, engine, execute, rows_of
from edgewake.cloud.lake.files import Disk
from edgewake.cloud.lake.manifest import File
from edgewake.cloud.lake.present import Present
from edgewake.cloud.lake.shape import ColumnType, Kind
from edgewake.cloud.lake.sources import Source
from edgewake.protocol.errors import QueryError

NUMBER, STRING = ColumnType.NUMBER, ColumnType.STRING


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with engine() as connection:
        yield connection


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
