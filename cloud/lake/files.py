"""The lake's files: durable under their names before anybody is told of them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from edgewake.cloud.analysis.failpoint import reach
from edgewake.cloud.lake.manifest import File
from edgewake.cloud.lake.shape import ColumnType, Fields, Kind, physical
from edgewake.cloud.lake.sources import Source

ORPHAN_MS: Final = 3_600_000
"""Age of a file that the manifest does not know before it is deleted: another writer's may be named in a moment."""


class Disk:
    """Writes, merges and deletes files under a folder. Every method raises OSError, e.g. at a full disk."""

    def __init__(self, folder: Path, new_id: Callable[[], str] = lambda: secrets.token_hex(8)) -> None:
        self._folder = folder
        self._new_id = new_id

    def write(self, table: pa.Table, source: Source, date: str, fields: Fields, *, now_ms: int, level: int = 0) -> File:
        """A new file of a source's rows of one day."""
        registration = source.topic.rpartition(".")[2] if source.kind is Kind.QUERY else ""
        folder = f"{source.kind}={source.name}{'.' if registration else ''}{registration}/date={date}"
        path = self._folder / folder / f"{self._new_id()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        size = _durable(table, path)
        reach("lake.written")
        return File(
            path=str(path.relative_to(self._folder)),
            kind=source.kind,
            name=source.name,
            topic=source.topic,
            date=date,
            rows=table.num_rows,
            bytes=size,
            fields=dict(fields),
            written_at=now_ms,
            level=level,
        )

    def merge(self, files: Sequence[File], *, now_ms: int) -> File:
        """One file of the rows of several of one topic and day, whose fields agree."""
        fields: dict[str, ColumnType] = {}
        for file in files:
            fields |= file.fields
        tables = [self._by_field(file) for file in files]
        of_fields = physical(files[0].kind, fields)
        merged = pa.concat_tables(tables, promote_options="default")
        merged = merged.rename_columns([of_fields[name[1:]] if name.startswith("=") else name for name in merged.column_names])
        first = files[0]
        return self.write(merged, Source(first.topic, first.kind, first.name), first.date, fields, now_ms=now_ms, level=first.level + 1)

    def delete(self, paths: Iterable[str]) -> None:
        """One that is gone already is no error."""
        for path in paths:
            (self._folder / path).unlink(missing_ok=True)

    def delete_orphans(self, known: set[str], *, older_than_ms: int) -> None:
        """Files of a writer that died before they were named."""
        for path in [*self._folder.glob("*/date=*/*.parquet"), *self._folder.glob("*/date=*/*.partial")]:
            if str(path.relative_to(self._folder)) not in known and path.stat().st_mtime * 1000 < older_than_ms - ORPHAN_MS:
                path.unlink(missing_ok=True)

    def _by_field(self, file: File) -> pa.Table:
        """Its columns of fields named `=field`, which no column of the base is."""
        table = pq.read_table(self._folder / file.path, partitioning=None)
        names = {column: f"={name}" for name, column in physical(file.kind, file.fields).items()}
        return table.rename_columns([names.get(name, name) for name in table.column_names])


def _durable(table: pa.Table, path: Path) -> int:
    """Write a file under its name, so that a power cut leaves all of it or nothing; its size."""
    partial = path.with_suffix(".partial")
    try:
        pq.write_table(table, partial, compression="zstd")
        with partial.open("rb") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    partial.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return size
