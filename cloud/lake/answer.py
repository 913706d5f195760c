"""Answers one question over past and present, each row once, in a child process (asking.py).

The past is what the manifest names at one moment, the present what Kafka has after the places that
stand in the same moment's manifest.
"""

from __future__ import annotations

import decimal
import difflib
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import duckdb
import orjson
from pydantic import BaseModel, ConfigDict

from edgewake.cloud.kafka import clients
from edgewake.cloud.kafka.config import KafkaConfig
from edgewake.cloud.kafka.metadata import partition_counts
from edgewake.cloud.lake import present as presents
from edgewake.cloud.lake.checks import fault_of, place, tables_of, tree_of
from edgewake.cloud.lake.manifest import Contents, File, contents, kept_topics
from edgewake.cloud.lake.present import Present
from edgewake.cloud.lake.question import Question
from edgewake.cloud.lake.shape import (
    BASE,
    LAST_FIRST,
    SUMMARY_KEY,
    Column,
    ColumnType,
    Fields,
    Kind,
    columns,
    expressions,
    known_units,
    quoted,
)
from edgewake.cloud.lake.sources import Source, newest, sources_of
from edgewake.cloud.queries.sql_units import units_of
from edgewake.cloud.rights import as_sql
from edgewake.cloud.rights.names import Names
from edgewake.cloud.rights.principal import Action, Grant, Principal, Proof
from edgewake.protocol.errors import QueryError, QueryFault, Unavailable
from edgewake.protocol.ops.proof import Kind as ProofKind

MEMORY: Final = 512 << 20
"""Bytes that DuckDB may use; it is given no disk to spill to."""
BYTES_MAX: Final = 16 << 20
"""Bytes of an answer's rows; a longer one is cut."""
THREADS: Final = 2
_FETCH: Final = 500
_SAFE_INT: Final = 1 << 63
_ZONED: Final = " WITH TIME ZONE"
_WORDS: Final = (
    orjson.OPT_NAIVE_UTC
    | orjson.OPT_UTC_Z
    | orjson.OPT_NON_STR_KEYS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


class GrantRow(BaseModel):
    """A grant of who asks, as names and patterns; None: all there are."""

    model_config = ConfigDict(frozen=True)

    streams: list[str]
    devices: list[str] | None
    fields: list[str] | None


class Job(BaseModel):
    """What the child is told."""

    model_config = ConfigDict(frozen=True)

    question: Question
    lake_dir: Path
    kafka: KafkaConfig
    passed: dict[str, int] = {}
    """A query's topic → event time, ms, up to which its windows are final."""
    units: dict[str, dict[str, str]] = {}
    """Stream or query → column → unit, where one is known."""
    grants: list[GrantRow] | None = None
    """What who asks may see; None: everything."""

    @property
    def reader(self) -> Principal | None:
        """Who asks, by these grants; None: everything may be seen."""
        if self.grants is None:
            return None
        grants = tuple(
            Grant(
                frozenset({Action.ASK}),
                Names.of(one.streams),
                None if one.devices is None else Names.of(one.devices),
                None if one.fields is None else Names.of(one.fields),
            )
            for one in self.grants
        )
        return Principal("", grants, Proof(ProofKind.ANONYMOUS))


def answer(job: Job) -> dict[str, Any]:
    """Columns, rows as JSON text, and what they stand on.

    Raises QueryError, Unavailable, KafkaException.
    """
    begun_s = time.monotonic()
    question = job.question
    db = engine()
    tree = tree_of(db, question.sql)
    named = tables_of(question.sql, tree)
    past, present, sources = _gather(job, named)
    reader = job.reader
    try:
        for name, source in sources.items():
            files = [file for file in past.files if file.topic == source.topic]
            passed = job.passed.get(source.topic)
            bind(db, name, source, files, present, job.lake_dir, passed, reader)
    except duckdb.Error as error:
        raise _damage_of(job.lake_dir, error) or error from error
    close(db, [str(job.lake_dir / file.path) for file in past.files])
    timer = threading.Timer(
        max(0.01, question.seconds - (time.monotonic() - begun_s)), db.interrupt
    )
    timer.start()
    try:
        shown, names = execute(db, question.sql)
        rows, is_cut = rows_of(shown, question.rows)
    except duckdb.InterruptException as error:
        raise QueryError(
            f"not done within {question.seconds:g} s: ask for less, or for more seconds"
        ) from error
    except duckdb.OutOfMemoryException as error:
        raise MemoryError from error
    except duckdb.Error as error:
        raise _damage_of(job.lake_dir, error) or fault_of(question.sql, error) from error
    finally:
        timer.cancel()
    units = units_of(tree, [one["name"] for one in names], known_units(job.units))
    return {
        "columns": [{**one, "unit": unit} for one, unit in zip(names, units, strict=True)],
        "rows": orjson.Fragment(b"[" + b",".join(rows) + b"]"),
        "is_cut": is_cut,
        "past": {
            "files": len(past.files),
            "rows": None if reader is not None else sum(file.rows for file in past.files),
            "lost_records": None if reader is not None else past.gaps + present.lost,
        },
        "present": {
            "rows": None if reader is not None else present.rows,
            "records_left": present.left,
        },
        "seconds": round(time.monotonic() - begun_s, 3),
    }


def _damage_of(folder: Path, error: duckdb.Error) -> Unavailable | None:
    """Where a file of the lake is at fault, and not the question."""
    detail = str(fault_of("", error))
    return (
        Unavailable(f"a file of the lake cannot be read: {detail.replace(f'{folder}/', '')}")
        if f"{folder}/" in detail
        else None
    )


def engine() -> duckdb.DuckDBPyConnection:
    """DuckDB within its bounds.

    Its clock is UTC as all times are: `now()` would be the machine's zone's.
    """
    db = duckdb.connect(
        config={"memory_limit": f"{MEMORY >> 20}MiB", "threads": THREADS, "errors_as_json": True}
    )
    db.execute("SET TimeZone = 'UTC'")
    return db


def execute(
    db: duckdb.DuckDBPyConnection, sql: str
) -> tuple[duckdb.DuckDBPyConnection, list[dict[str, str]]]:
    """Begin to answer a checked question; its columns.

    Times with a zone become those of UTC, as all others are. Raises duckdb.Error.
    """
    shown = db.execute(sql)
    columns_ = [{"name": name, "type": str(type_)} for name, type_, *_ in shown.description or ()]
    if not any(_ZONED in column["type"] for column in columns_):
        return shown, columns_
    # Generated again from its syntax tree: a semicolon or a comment at the end could not stand in
    # brackets.
    ((text,),) = db.execute("SELECT json_deserialize_sql(json_serialize_sql(?))", [sql]).fetchall()
    for column in columns_:
        column["type"] = (
            column["type"]
            .replace(f"TIMESTAMP{_ZONED}", "TIMESTAMP")
            .replace(f"TIME{_ZONED}", "VARCHAR")
        )
    casts = [
        f"#{i}::{column['type']} AS {quoted(column['name'])}"
        for i, column in enumerate(columns_, 1)
    ]
    return db.execute(f"SELECT {', '.join(casts)} FROM ({text})"), columns_  # noqa: S608  (checked, and DuckDB's own types)


def _gather(job: Job, named: Mapping[str, int]) -> tuple[Contents, Present, dict[str, Source]]:
    """Past and present of the streams, queries and summaries that are named."""
    if not named:
        return Contents([], {}, 0), Present(), {}
    counts = partition_counts(clients.admin(job.kafka))
    reader = job.reader
    there = {
        name: source
        for name, source in newest(
            sources_of({*counts, *kept_topics(job.lake_dir)}).values()
        ).items()
        if reader is None or source.kind is Kind.SUMMARY or reader.may(Action.ASK, name)
    }
    for name, at in named.items():
        if name not in there:
            near = ", ".join(difflib.get_close_matches(name, there, n=3))
            hint = f"; did you mean {near}?" if near else ""
            raise QueryError(
                QueryFault(
                    f"unknown stream, query or summary {name[:80]!r}{hint}",
                    *place(job.question.sql, at),
                )
            )
    sources = {name: there[name] for name in named}
    # First the manifest: what is moved into the lake after that is read from Kafka, where it still
    # is.
    past = contents(job.lake_dir, [source.topic for source in sources.values()])
    return (
        past,
        presents.read(
            job.kafka, sources.values(), counts, past.places, seconds=job.question.seconds / 2
        ),
        sources,
    )


def bind(
    db: duckdb.DuckDBPyConnection,
    name: str,
    source: Source,
    files: Sequence[File],
    present: Present,
    folder: Path,
    passed: int | None = None,
    reader: Principal | None = None,
) -> None:
    """Make a view of the source's rows, with a name as the user writes it. `passed`: see Job.

    `reader`: to whose grants it is narrowed; None: to nobody's.
    """
    gathered = present.gathered.get(source.topic)
    tables = [] if gathered is None else gathered.tables
    shown = columns(
        source.kind, [*(file.fields for file in files), *(rows.fields for rows in tables)]
    )
    base = list(BASE[source.kind])
    parts = []
    for fields, paths in _by_fields(files):
        listed = ", ".join(_text(str(folder / path)) for path in paths)
        of_fields = expressions(source.kind, shown, fields)
        rows_in = f"read_parquet([{listed}], hive_partitioning = false)"
        if source.kind is Kind.SUMMARY:
            rows_in = _with_all_columns(source.kind, listed)
        parts.append(f"SELECT {_list(base, of_fields)} FROM {rows_in}")  # noqa: S608
    for number, rows in enumerate(tables):
        db.register("arrow_rows", rows.table())
        kept = quoted(f"present {name} {number}")
        db.execute(f"CREATE TABLE {kept} AS FROM arrow_rows")
        db.unregister("arrow_rows")
        parts.append(
            f"SELECT {_list(base, expressions(source.kind, shown, rows.fields))} FROM {kept}"  # noqa: S608
        )
    if not parts:
        parts.append(_no_row(source.kind))
    rows_of = " UNION ALL ".join(parts)
    schema, _, table = name.rpartition(".")
    if schema:
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
    view = f"{quoted(schema)}.{quoted(table)}" if schema else quoted(table)
    truth = _truth(rows_of, {column.name for column in shown}, source.kind, passed)
    db.execute(f"CREATE VIEW {view} AS {_narrowed(truth, source, shown, reader)}")


def _narrowed(rows: str, source: Source, shown: Sequence[Column], reader: Principal | None) -> str:
    """The rows and columns that somebody may see."""
    if reader is None:
        return rows
    if source.kind is Kind.SUMMARY:
        return as_sql.barred("*", rows, as_sql.summaries_of(reader.grants))
    scope = reader.scope(Action.ASK, source.name)
    if scope is None:
        return rows
    base = list(BASE[source.kind])
    if source.kind is Kind.QUERY and as_sql.cuts_fields(scope):
        base.remove("@key")  # it is made of fields
    is_of_devices = source.kind is Kind.STREAM or any(
        column.name == "device" and column.type is ColumnType.STRING for column in shown
    )
    device = quoted("device") if is_of_devices else None
    of_fields = [
        f"{value} AS {quoted(column.name)}"
        for column in shown
        for value in [as_sql.value_of(scope, column.field, quoted(column.name), device)]
        if value is not None
    ]
    return as_sql.barred(_list(base, of_fields), rows, as_sql.rows_of(scope, device))


def _with_all_columns(kind: Kind, listed: str) -> str:
    """The rows of files; those of before there was a kind of sketch lack its column."""
    files = f"read_parquet([{listed}], hive_partitioning = false, union_by_name = true)"
    return f"({_no_row(kind)} UNION ALL BY NAME FROM {files})"


def _no_row(kind: Kind) -> str:
    """A table of the right columns, empty."""
    of_types = [f"NULL::{type_} AS {quoted(column)}" for column, type_ in BASE[kind].items()]
    return f"SELECT {', '.join(of_types)} WHERE false"


def _truth(rows: str, shown_names: set[str], kind: Kind, passed: int | None) -> str:
    """Rows of queries and summaries: only the last revision of each, without the withdrawn ones.

    A row is told when it changes, and not once more when its window becomes final, so what is final
    the query's watermark says.
    """
    if kind is Kind.STREAM:
        return rows
    if kind is Kind.SUMMARY:
        return (
            f"FROM ({rows}) QUALIFY row_number() OVER (PARTITION BY {', '.join(SUMMARY_KEY)} "
            f"ORDER BY {LAST_FIRST}) = 1"
        )
    last = (
        f'FROM ({rows}) QUALIFY row_number() OVER (PARTITION BY "@key" ORDER BY "@offset" DESC) = 1'
    )
    true = f"FROM ({last}) WHERE withdrawn IS NOT TRUE" if "withdrawn" in shown_names else last
    if passed is None:
        return true
    final = f"(coalesce(final, false) OR window_end <= make_timestamp({passed * 1000})) AS final"
    return f"SELECT * REPLACE ({final}) FROM ({true})"  # noqa: S608  (a number)


def _list(base: Iterable[str], of_fields: Iterable[str]) -> str:
    return ", ".join([*map(quoted, base), *of_fields])


def _by_fields(files: Iterable[File]) -> Iterator[tuple[Fields, list[str]]]:
    """Files of the same fields together."""
    groups: dict[tuple[Any, ...], list[File]] = defaultdict(list)
    for file in files:
        groups[tuple(sorted(file.fields.items()))].append(file)
    for group in groups.values():
        yield group[0].fields, [file.path for file in group]


def close(db: duckdb.DuckDBPyConnection, paths: Sequence[str]) -> None:
    """From now on: these files, nothing else of the machine, and no setting."""
    db.execute(f"SET allowed_paths = [{', '.join(map(_text, paths))}]")
    for setting in ("temp_directory = ''", "python_enable_replacements = false",
        "autoload_known_extensions = false",
                    "autoinstall_known_extensions = false", "allow_community_extensions = false",
                    "allow_persistent_secrets = false",
                    "enable_external_access = false", "lock_configuration = true"):  # fmt: skip
        db.execute(f"SET {setting}")


def rows_of(shown: duckdb.DuckDBPyConnection, rows_max: int) -> tuple[list[bytes], bool]:
    """Rows as JSON lists, and whether there are more.

    Raises QueryError for a value that neither Python nor JSON has.
    """
    found: list[bytes] = []
    size = 0
    try:
        while batch := shown.fetchmany(_FETCH):
            for row in batch:
                text = orjson.dumps([_plain(value) for value in row], default=str, option=_WORDS)
                size += len(text)
                if len(found) == rows_max or size > BYTES_MAX:
                    return found, True
                found.append(text)
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        raise QueryError(
            f"a value of the answer cannot be shown ({str(error)[:200]}): cast it to VARCHAR"
        ) from error
    return found, False


def _plain(value: Any) -> Any:
    """The value in JSON: NaN and infinity are null, a number beyond 64 bits is text.

    Bytes are hexadecimal.
    """
    match value:
        case bool() | str() | float() | None:
            return value
        case int():
            return value if -_SAFE_INT <= value < _SAFE_INT else str(value)
        case decimal.Decimal():
            return float(value)
        case bytes():
            return value.hex()
        case timedelta():
            return value.total_seconds()
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
    return value


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
