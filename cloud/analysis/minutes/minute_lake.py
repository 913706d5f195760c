"""The lake of summaries: Parquet under <data>/lake/summaries/stream=…/date=…/.

pyarrow, DuckDB and Spark read it.

Each micro-batch writes one file, named by its revision, so that a repeated batch replaces its own
file. A row appears once for each revision that changed it; the highest one is the truth. When a day
has FILES_MAX files of batches they are merged into one with the truth alone (several where they are
large), and when a day begins what is left of those before it. With a batch a minute a stream has up
to 24 merged files a day, and fewer than FILES_MAX others in all. Days older than `lake_days` are
removed.

What came late of a minute is in rows of its own: `part` tells them apart, and is null in the row of
what came in time. All rows of a minute together are the minute: their readings and sums are added,
their sketches merged. A file that cannot be read is put aside, as `_….damaged`.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from edgewake.protocol.clock import Clock

log = logging.getLogger("edgewake.analysis")

FILES_MAX: Final = 60
"""Files of batches of one stream and day before they are merged. A merged file is merged no more: a
day's sketches fill the memory."""
MERGE_BYTES_MAX: Final = 64 << 20
"""Bytes of rows that are merged into one file: a day that many devices bring late has as many rows
in each batch as there are minutes."""
_MERGED: Final = "-merged"
"""Follows the revision of the newest batch in the file's name."""
_KEYS: Final = ("field", "devices", "minute", "part")


class Lake:
    """Summaries on disk."""

    def __init__(self, root: Path, clock: Clock, *, days: int = 0) -> None:
        """`days`: how many days of each stream are kept, today being one; 0: all."""
        self._root, self._clock, self._days = root, clock, days

    def keep(self, stream: str, rows: pa.Table, revision: int) -> None:
        """Write a batch's rows, one file for each day they touch."""
        rows = rows.append_column("revision", pa.array([revision] * rows.num_rows, pa.int64()))
        dates = [_date(minute) for minute in rows.column("minute").to_pylist()]
        of_stream = self._root / "summaries" / f"stream={stream}"
        for date in sorted(set(dates)):
            folder = of_stream / f"date={date}"
            is_new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            _keep(rows.filter(pa.array([other == date for other in dates])), folder, revision)
            if is_new:
                self._tidy_before(date, of_stream)

    def erase(self, stream: str, before_ms: int) -> tuple[int, int]:
        """Remove what was summed up of a stream's minutes before a time; files and rows.

        Raises OSError.
        """
        files = rows = 0
        for path in sorted((self._root / "summaries" / f"stream={stream}").glob("date=*/*")):
            table = _readable(path, pq.read_table) if path.suffix == ".parquet" else None
            kept = None if table is None else _from(table, before_ms)
            if kept is not None and table is not None and kept.num_rows == table.num_rows:
                continue
            files += 1
            rows += 0 if table is None else table.num_rows
            if kept is not None and kept.num_rows:
                rows -= kept.num_rows
                _write(kept, path)
            else:
                path.unlink(missing_ok=True)
                path.with_name(f"_{path.name}.damaged").unlink(missing_ok=True)
        return files, rows

    def _tidy_before(self, date: str, of_stream: Path) -> None:
        # The earlier of two clocks: that of a bridge may be years ahead, and so may ours.
        today = dt.date.fromisoformat(min(date, _date(self._clock.now_ms())))
        oldest = f"date={today - dt.timedelta(days=self._days - 1)}" if self._days else ""
        for folder in of_stream.glob("date=*"):
            if folder.name < oldest:
                shutil.rmtree(folder, ignore_errors=True)
            elif folder.name < f"date={date}" and len(_batches(folder)) > 1:
                _merge(folder)


def _from(rows: pa.Table, time_ms: int) -> pa.Table:
    return rows.filter(pa.array([at >= time_ms for at in rows.column("minute").to_pylist()]))


def latest(rows: pa.Table) -> pa.Table:
    """Return only the highest revision of each field, set of devices, minute and part, each once.

    Some rows are in two files.
    """
    keys = _keys(rows)
    places = pa.array(range(rows.num_rows), pa.int64())
    ascending = rows.select([*keys, "revision"]).append_column("place", places).sort_by("revision")
    newest = ascending.group_by(keys, use_threads=False).aggregate([("place", "last")])
    return rows.take(newest["place_last"].sort())


def _keys(rows: pa.Table) -> list[str]:
    """Files that were written before there were sets of devices, or parts, lack them."""
    return [key for key in _KEYS if key in rows.column_names]


def _date(time_ms: int) -> str:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).date().isoformat()


def _batches(folder: Path) -> list[Path]:
    """Files of single batches, the oldest first."""
    return sorted(path for path in folder.glob("*.parquet") if path.stem.isdigit())


def _keep(rows: pa.Table, folder: Path, revision: int) -> None:
    if (folder / f"{revision:012d}{_MERGED}.parquet").exists():
        return  # a repeated batch, and its file was the last of those that were merged
    _write(rows, folder / f"{revision:012d}.parquet")
    if len(_batches(folder)) >= FILES_MAX:
        _merge(folder)


def _merge(folder: Path) -> None:
    """Merge files of single batches into few, and remove half-written files."""
    for group in _groups(_batches(folder)):
        read = {path: _readable(path, pq.read_table) for path in group}
        tables = {path: table for path, table in read.items() if table is not None}
        if not tables:
            continue
        files = list(tables)
        rows = latest(pa.concat_tables(list(tables.values()), promote_options="permissive"))
        ordered = rows.take(pc.sort_indices(rows, [(key, "ascending") for key in _keys(rows)]))
        _write(ordered, files[-1].with_name(f"{files[-1].stem}{_MERGED}.parquet"))
        for path in files:
            path.unlink()
    for path in folder.glob("*.partial"):
        path.unlink()


def _groups(files: Iterable[Path]) -> list[list[Path]]:
    """Files one after the other, of MERGE_BYTES_MAX together or one alone."""
    groups: list[list[Path]] = []
    left = 0
    for path in files:
        found = _readable(path, pq.read_metadata)
        if found is None:
            continue
        size = sum(found.row_group(i).total_byte_size for i in range(found.num_row_groups))
        if not groups or size > left:
            groups.append([])
            left = MERGE_BYTES_MAX
        groups[-1].append(path)
        left -= size
    return groups


def _readable(path: Path, read: Callable[[Path], Any]) -> Any:
    """Return what `read` gives; None for a damaged file, which is renamed.

    Left in place it would end the summaries at each batch.
    """
    try:
        return read(path)
    except (OSError, pa.ArrowException) as error:
        log.error(
            "%s cannot be read and is put aside: %s", path, error, extra={"event": "lake.damaged"}
        )
        # Readers of the folder pass over what begins so.
        path.replace(path.with_name(f"_{path.name}.damaged"))
        return None


def _write(rows: pa.Table, path: Path) -> None:
    partial = path.with_suffix(".partial")
    pq.write_table(rows, partial, compression="zstd")
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)
