"""The lake's files: durable under their names before anybody is told of them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from edgewake.cloud.failpoint import reach
from edgewake.cloud.lake.manifest import File
from edgewake.cloud.lake.shape import SUMMARY_KEY, ColumnType, Fields, Kind, physical
from edgewake.cloud.lake.sources import Source
from edgewake.protocol.files.durable import sync_directory

ORPHAN_MS: Final = 3_600_000
"""Age of a file that the manifest does not know before it is deleted: another writer's may be named
in a moment."""

ROW_GROUP_BYTES: Final = 64 << 20
"""Bytes in memory of what a merge writes at once. It never holds all that it merges: half a million
rows of long texts are gigabytes."""


class Damaged(Exception):
    """A file that the manifest names cannot be read."""

    def __init__(self, file: File, error: Exception) -> None:
        super().__init__(f"{file.path} cannot be read: {error}")
        self.file = file


class Disk:
    """Writes, merges and deletes files under a folder.

    Every method raises OSError, e.g. at a full disk.
    """

    def __init__(
        self, folder: Path, new_id: Callable[[], str] = lambda: secrets.token_hex(8)
    ) -> None:
        self._folder = folder
        self._new_id = new_id

    def write(
        self, table: pa.Table, source: Source, date: str, fields: Fields, *, now_ms: int
    ) -> File:
        """A new file of a source's rows of one day."""
        return self._written([table], table.schema, source, date, fields, now_ms=now_ms, level=0)

    def merge(self, files: Sequence[File], *, now_ms: int) -> File:
        """Merge several files of one topic and day, whose fields agree. Raises Damaged.

        Of summaries it keeps the last revision.
        """
        first, fields = files[0], dict[str, ColumnType]()
        for file in files:
            fields |= file.fields
        columns = physical(first.kind, fields)
        # For each file: its column of a field → the column of the merged file.
        names = [
            {column: columns[name] for name, column in physical(file.kind, file.fields).items()}
            for file in files
        ]
        opened = list(zip(files, names, strict=True))
        schema = pa.unify_schemas([self._schema(file, of_file) for file, of_file in opened])
        tables: Iterable[pa.Table] = (
            table for file, of_file in opened for table in self._row_groups(file, of_file)
        )
        if first.kind is Kind.SUMMARY:
            tables = _only(
                _are_last(pa.concat_tables([self._keys(file) for file in files])), tables
            )
        source = Source(first.topic, first.kind, first.name)
        return self._written(
            _gathered(tables, schema),
            schema,
            source,
            first.date,
            fields,
            now_ms=now_ms,
            level=first.level + 1,
        )

    def without(
        self, file: File, is_gone: Callable[[pa.Table], pa.Array], *, now_ms: int
    ) -> tuple[File | None, int]:
        """The file without rows that are gone, and their number. Raises Damaged.

        It is the same file where there are none, None where nothing is left.

        `is_gone`: a table → for each row, whether it goes.
        """
        gone = sum(pc.sum(is_gone(table)).as_py() or 0 for table in self._row_groups(file, {}))
        if not gone:
            return file, 0
        if gone == file.rows:
            return None, gone
        schema = self._schema(file, {})
        kept = (table.filter(pc.invert(is_gone(table))) for table in self._row_groups(file, {}))
        source = Source(file.topic, file.kind, file.name)
        written = self._written(
            kept, schema, source, file.date, file.fields, now_ms=now_ms, level=file.level
        )
        return written, gone

    def delete(self, paths: Iterable[str]) -> None:
        """A missing file is not an error."""
        for path in paths:
            (self._folder / path).unlink(missing_ok=True)

    def delete_orphans(self, known: set[str], *, older_than_ms: int | None) -> None:
        """Files of a writer that died before they were named; None: however young they are."""
        for path in [
            *self._folder.glob("*/date=*/*.parquet"),
            *self._folder.glob("*/date=*/*.partial"),
        ]:
            is_old = (
                older_than_ms is None or path.stat().st_mtime * 1000 < older_than_ms - ORPHAN_MS
            )
            if str(path.relative_to(self._folder)) not in known and is_old:
                path.unlink(missing_ok=True)

    def _written(
        self,
        tables: Iterable[pa.Table],
        schema: pa.Schema,
        source: Source,
        date: str,
        fields: Fields,
        *,
        now_ms: int,
        level: int,
    ) -> File:
        registration = source.topic.rpartition(".")[2] if source.kind is Kind.QUERY else ""
        folder = (
            f"{source.kind}={source.name}{'.' if registration else ''}{registration}/date={date}"
        )
        path = self._folder / folder / f"{self._new_id()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows, size = _durable(tables, schema, path)
        reach("lake.written")
        return File(
            path=str(path.relative_to(self._folder)),
            kind=source.kind,
            name=source.name,
            topic=source.topic,
            date=date,
            rows=rows,
            bytes=size,
            fields=dict(fields),
            written_at=now_ms,
            level=level,
        )

    def _schema(self, file: File, names: Mapping[str, str]) -> pa.Schema:
        with _as_damage(file):
            schema = pq.read_schema(self._folder / file.path)
        return pa.schema([field.with_name(names.get(field.name, field.name)) for field in schema])

    def _keys(self, file: File) -> pa.Table:
        """What tells which summary is the last one, of every row."""
        with _as_damage(file), pq.ParquetFile(self._folder / file.path) as opened:
            return opened.read([*SUMMARY_KEY, "readings", "@offset"])

    def _row_groups(self, file: File, names: Mapping[str, str]) -> Iterator[pa.Table]:
        with _as_damage(file):
            opened = pq.ParquetFile(self._folder / file.path)
        with opened:
            for number in range(opened.num_row_groups):
                with _as_damage(file):
                    table = opened.read_row_group(number)
                yield table.rename_columns([names.get(name, name) for name in table.column_names])


@contextmanager
def _as_damage(file: File) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise Damaged(file, error) from error


def _are_last(rows: pa.Table) -> pa.BooleanArray:
    """For each row whether shape.LAST_FIRST puts it first among those of its summary."""
    places = pa.array(range(rows.num_rows), pa.int64())
    of_cloud = pc.if_else(pc.equal(rows["maker"], ""), rows["readings"], 0)
    ascending = (
        rows.append_column("place", places)
        .append_column("of_cloud", of_cloud)
        .sort_by([("of_cloud", "ascending"), ("@offset", "ascending")])
    )
    last = ascending.group_by(SUMMARY_KEY, use_threads=False).aggregate([("place", "last")])[
        "place_last"
    ]
    return pc.is_in(places, value_set=last)


def _only(kept: pa.BooleanArray, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    at = 0
    for table in tables:
        yield table.filter(kept.slice(at, table.num_rows))
        at += table.num_rows


def _gathered(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """Regroup rows into tables of ROW_GROUP_BYTES or a little more, with all columns."""
    waiting, size = [schema.empty_table()], 0
    for table in tables:
        waiting.append(table)
        size += table.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting, promote_options="default")
            waiting, size = [schema.empty_table()], 0
    if len(waiting) > 1:
        yield pa.concat_tables(waiting, promote_options="default")


def _durable(tables: Iterable[pa.Table], schema: pa.Schema, path: Path) -> tuple[int, int]:
    """Write a file completely or, after a power cut, not at all; return its rows and bytes."""
    partial, rows = path.with_suffix(".partial"), 0
    try:
        with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
            for table in tables:
                writer.write_table(table)
                rows += table.num_rows
        with partial.open("rb") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)
    sync_directory(path.parent)
    return rows, size
