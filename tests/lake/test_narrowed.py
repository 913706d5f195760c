"""What who has grants is answered in SQL: streams, devices and fields that they name, and no trace
of others, whatever is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from edgewake.cloud.lake.answer import bind, close, engine
from edgewake.cloud.lake.files import Disk
from edgewake.cloud.lake.present import Present
from edgewake.cloud.lake.shape import BASE, ColumnType, Kind
from edgewake.cloud.lake.sources import Source
from edgewake.cloud.rights.config import GrantConfig
from edgewake.cloud.rights.principal import Principal, Proof
from edgewake.cloud.rights.roles import granted
from edgewake.protocol.ops.proof import Kind as ProofKind

NUMBER, STRING = ColumnType.NUMBER, ColumnType.STRING
DEVICES = ["car-1", "car-2", "car_1"]
READINGS: dict[str, list[object]] = {"speed": [10.0, 20.0, 30.0], "word": ["1", "hidden-word", "3"]}
OWN = {"streams": ["s"], "devices": ["car-1"]}


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with engine() as connection:
        yield connection


def asker(*grants: Mapping[str, object]) -> Principal:
    found = (GrantConfig.model_validate({"actions": ["ask"], **one}) for one in grants)
    return Principal("p", tuple(granted(one, {}) for one in found), Proof(ProofKind.ANONYMOUS))


def table_of(kind: Kind, values: dict[str, list[object]]) -> pa.Table:
    """Rows with every column that each row has."""
    count = len(next(iter(values.values())))
    types = {"VARCHAR": pa.string(), "BIGINT": pa.int64(), "TIMESTAMP": pa.timestamp("ms")}
    types |= {"BOOLEAN": pa.bool_(), "INTEGER": pa.int32(), "DOUBLE": pa.float64()}
    base = {
        name: pa.array([None] * count, types.get(type_, pa.binary()))
        for name, type_ in BASE[kind].items()
    }
    base["@offset"] = pa.array(range(count), pa.int64())
    return pa.table(base | values)


def shown_to(
    db: duckdb.DuckDBPyConnection,
    folder: Path,
    reader: Principal | None,
    source: Source,
    values: dict[str, list[object]],
    fields: dict[str, ColumnType],
) -> None:
    kept = [
        Disk(folder).write(table_of(source.kind, values), source, "2026-11-22", fields, now_ms=1)
    ]
    bind(db, source.name, source, kept, Present(), folder, None, reader)
    close(db, [str(folder / file.path) for file in kept])


def readings(db: duckdb.DuckDBPyConnection, folder: Path, *grants: Mapping[str, object]) -> None:
    values: dict[str, list[object]] = {"device": list(DEVICES), **READINGS}
    fields = {"speed": NUMBER, "word": STRING}
    source = Source("ew.s.s", Kind.STREAM, "s")
    shown_to(db, folder, asker(*grants), source, values, fields)


@pytest.mark.parametrize(
    ("devices", "seen"),
    [
        (["car-1"], ["car-1"]),
        (["car-*"], ["car-1", "car-2"]),
        (["car_*"], ["car_1"]),
        (["%", "ca'r"], []),
        (["nobody"], []),
    ],
)
def test_rows_of_other_devices_are_not_there(
    db: duckdb.DuckDBPyConnection, tmp_path: Path, devices: list[str], seen: list[str]
) -> None:
    readings(db, tmp_path, OWN | {"devices": devices})
    assert db.execute("SELECT device FROM s ORDER BY device").fetchall() == [(one,) for one in seen]
    assert db.execute("SELECT count(*), max(speed) FROM s").fetchall()[0][0] == len(seen)


def test_a_field_that_is_not_granted_is_as_one_that_is_not_there(tmp_path: Path) -> None:
    own = asker(OWN | {"fields": ["speed"]})
    source, texts = Source("ew.s.s", Kind.STREAM, "s"), []
    for number, fields in enumerate(({"speed": NUMBER, "word": STRING}, {"speed": NUMBER})):
        values: dict[str, list[object]] = {"device": list(DEVICES)}
        values |= {name: list(READINGS[name]) for name in fields}
        with engine() as one:
            shown_to(one, tmp_path / str(number), own, source, values, fields)
            assert one.execute("SELECT device, speed FROM s").fetchall() == [("car-1", 10.0)]
            with pytest.raises(duckdb.BinderException) as error:
                one.execute("SELECT word FROM s")
            texts.append(str(error.value))
    assert texts[0] == texts[1]


def test_fields_of_one_grant_are_not_seen_of_the_devices_of_another(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    one = {"streams": ["s"], "fields": ["speed"]}
    readings(db, tmp_path, one, OWN | {"fields": ["word"]})
    found = db.execute("SELECT device, speed, word FROM s ORDER BY speed").fetchall()
    assert found == [("car-1", 10.0, "1"), ("car-2", 20.0, None), ("car_1", 30.0, None)]


@pytest.mark.parametrize(
    "where",
    [
        "CAST(word AS INTEGER) > 0",
        "word::INTEGER = 1 AND device = 'car-1'",
        "device = 'car-2' OR CAST(word AS DOUBLE) > 0",
        "1 / (CASE WHEN device = 'car-2' THEN 0 ELSE 1 END) >= 0 AND word::INTEGER > 0",
    ],
)
def test_no_condition_and_no_error_of_one_reaches_what_is_hidden(
    db: duckdb.DuckDBPyConnection, tmp_path: Path, where: str
) -> None:
    """An engine tries the condition that it thinks cheapest first; its error would tell the
    value.
    """
    readings(db, tmp_path, OWN)
    assert db.execute(f"SELECT device FROM s WHERE {where}").fetchall() == [("car-1",)]


def test_an_asker_s_condition_is_tried_behind_the_bar(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """This DuckDB tries what may fail last. Nobody says that it will; this is what we say."""
    readings(db, tmp_path, OWN)
    ((_, plan),) = db.execute("EXPLAIN SELECT device FROM s WHERE word LIKE '%zz%'").fetchall()
    assert plan.index("zz") < plan.index("Limit:") < plan.index("car-1")


def test_of_a_query_rows_without_a_device_tell_of_others_and_its_key_of_its_fields(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    source = Source("ew.q.q.1", Kind.QUERY, "q")
    values: dict[str, list[object]] = {
        "@key": ["k1", "k2", "k3"], "device": ["car-1", "car-2", None], "n": [1.0, 2.0, 3.0],
        "word": ["a", "b", "c"],
    }  # fmt: skip
    fields = {"device": STRING, "n": NUMBER, "word": STRING}
    own = {"streams": ["q"], "devices": ["car-1"], "fields": ["n"]}
    shown_to(db, tmp_path, asker(own), source, values, fields)
    assert db.execute("SELECT device, n FROM q").fetchall() == [("car-1", 1.0)]
    columns = [column[0] for column in db.execute("SELECT * FROM q").description or ()]
    assert {"@key", "word"}.isdisjoint(columns)


def test_of_a_query_without_a_device_nothing_is_seen_through_a_right_to_devices(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    source = Source("ew.q.q.1", Kind.QUERY, "q")
    values: dict[str, list[object]] = {"@key": ["k1"], "n": [1.0]}
    own = {"streams": ["q"], "devices": ["car-1"]}
    shown_to(db, tmp_path, asker(own), source, values, {"n": NUMBER})
    assert db.execute("SELECT count(*) FROM q").fetchall() == [(0,)]


def test_of_summaries_those_of_granted_streams_fields_and_devices(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    source = Source("ew.summaries.hour", Kind.SUMMARY, "summaries.hour")
    series = [
        ("s", "speed", "@car-1"), ("s", "speed", "@car-2"), ("s", "speed", ""),
        ("s", "speed", "car-1"), ("s", "word", "@car-1"), ("t", "speed", ""), ("u", "speed", ""),
    ]  # fmt: skip
    values: dict[str, list[object]] = {
        name: [one[n] for one in series] for n, name in enumerate(("stream", "field", "devices"))
    }
    asks = asker(OWN | {"fields": ["speed"]}, {"streams": ["t"]})
    shown_to(db, tmp_path, asks, source, values | {"maker": ["m"] * len(series)}, {})
    found = db.execute("SELECT stream, field, devices FROM summaries.hour ORDER BY ALL").fetchall()
    assert found == [("s", "speed", "@car-1"), ("t", "speed", "")]
