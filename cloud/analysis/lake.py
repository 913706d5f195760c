"""The lake of summaries: Parquet under <data>/lake/summaries/stream=…/date=…/, for pyarrow, DuckDB, Spark and whoever comes.

Each micro-batch writes one file, named by its revision, so that a repeated batch replaces its own file. A row appears once for each
revision that changed it; the highest one is the truth. When a day has FILES_MAX files they are merged into one with the truth alone.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

log = logging.getLogger("edgewake.analysis")

FILES_MAX: Final = 60
"""Files of one stream and day before they are merged."""
_KEYS: Final = ("field", "devices", "minute")


class Lake:
    """Summaries on disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def keep(self, stream: str, rows: pa.Table, revision: int) -> None:
        """Write a batch's rows, one file for each day they touch."""
        rows = rows.append_column("revision", pa.array([revision] * rows.num_rows, pa.int64()))
        dates = [dt.datetime.fromtimestamp(minute / 1000, dt.UTC).date().isoformat() for minute in rows.column("minute").to_pylist()]
        for date in sorted(set(dates)):
            folder = self._root / "summaries" / f"stream={stream}" / f"date={date}"
            folder.mkdir(parents=True, exist_ok=True)
            _write(rows.filter(pa.array([other == date for other in dates])), folder / f"{revision:012d}.parquet")
            if len(files := sorted(folder.glob("*.parquet"))) >= FILES_MAX:
                _merge(files)


def latest(rows: pa.Table) -> pa.Table:
    """Only the highest revision of each field, set of devices and minute."""
    keys = _keys(rows)
    highest = rows.group_by(keys).aggregate([("revision", "max")])
    wanted = {tuple(row[key] for key in (*keys, "revision_max")) for row in highest.to_pylist()}
    places = zip(*(rows.column(name).to_pylist() for name in (*keys, "revision")), strict=True)
    return rows.filter(pa.array([place in wanted for place in places]))


def _keys(rows: pa.Table) -> list[str]:
    """Files that were written before there were sets of devices lack their names."""
    return [key for key in _KEYS if key in rows.column_names]


def _merge(files: list[Path]) -> None:
    """Replace files by one that has the newest one's name: a repeated batch still replaces its own rows by the same ones."""
    rows = latest(pa.concat_tables([pq.read_table(path) for path in files], promote_options="permissive"))
    _write(rows.take(pc.sort_indices(rows, [(key, "ascending") for key in _keys(rows)])), files[-1])
    for path in files[:-1]:
        path.unlink()


def _write(rows: pa.Table, path: Path) -> None:
    partial = path.with_suffix(".partial")
    pq.write_table(rows, partial, compression="zstd")
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(path)
