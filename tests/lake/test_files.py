"""Files of the lake: merged, whole or not there, cleaned up."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgewake.cloud.lake import files as files_
from edgewake.cloud.lake.files import Damaged, Disk
from edgewake.cloud.lake.manifest import File
from edgewake.cloud.lake.shape import ColumnType, Kind
from edgewake.cloud.lake.sources import Source

SOURCE = Source("ew.s.s", Kind.STREAM, "s")


NUMBER = ColumnType.NUMBER


def written(folder: Path, values: list[float], field: str = "a") -> File:
    return Disk(folder).write(
        pa.table({field: values}), SOURCE, "2026-11-22", {field: NUMBER}, now_ms=1
    )


def test_files_are_merged_by_field_and_the_old_ones_stay_until_they_are_deleted(
    tmp_path: Path,
) -> None:
    disk, files = (
        Disk(tmp_path),
        [written(tmp_path, [1.0]), written(tmp_path, [2.0], "b"), written(tmp_path, [3.0], "A")],
    )
    merged = disk.merge(files, now_ms=2)
    table = pq.read_table(tmp_path / merged.path, partitioning=None).to_pydict()
    assert table == {"a@2": [1.0, None, None], "b": [None, 2.0, None], "A": [None, None, 3.0]}
    assert (merged.rows, merged.level, merged.fields) == (
        3,
        1,
        {"a": NUMBER, "b": NUMBER, "A": NUMBER},
    )
    assert all((tmp_path / file.path).exists() for file in files)
    disk.delete([*(file.path for file in files), "gone.parquet"])
    assert [path.name for path in tmp_path.glob("*/*/*")] == [Path(merged.path).name]


def test_a_merge_holds_a_part_of_the_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_, "ROW_GROUP_BYTES", 100)
    files = [written(tmp_path, [float(file)] * 10, "ab"[file % 2]) for file in range(7)]
    merged = Disk(tmp_path).merge(files, now_ms=2)
    with pq.ParquetFile(tmp_path / merged.path) as found:
        assert [found.metadata.row_group(i).num_rows for i in range(found.num_row_groups)] == [
            20,
            20,
            20,
            10,
        ]
        rows = found.read().to_pydict()
    assert (
        merged.rows,
        [a if b is None else b for a, b in zip(rows["a"], rows["b"], strict=True)],
    ) == (70, [i // 10 for i in range(70)])


@pytest.mark.parametrize("left", [None, 0, 100])
def test_a_file_that_cannot_be_merged_is_named_and_nothing_is_left_of_the_merge(
    tmp_path: Path, left: int | None
) -> None:
    files = [written(tmp_path, [1.0]), written(tmp_path, [2.0])]
    path = tmp_path / files[1].path
    path.unlink() if left is None else os.truncate(path, left)
    with pytest.raises(Damaged, match=files[1].path) as damaged:
        Disk(tmp_path).merge(files, now_ms=2)
    assert damaged.value.file == files[1]
    assert {path.name for path in tmp_path.glob("*/*/*")} <= {
        Path(file.path).name for file in files
    }


def test_a_full_disk_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            written(tmp_path, [1.0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert list(tmp_path.glob("*/*/*")) == []
    assert written(tmp_path, [1.0]).rows == 1


def test_what_a_writer_left_that_died_is_deleted_when_it_is_old(tmp_path: Path) -> None:
    disk, known, orphan = Disk(tmp_path), written(tmp_path, [1.0]), written(tmp_path, [2.0])
    now_ms = int((tmp_path / orphan.path).stat().st_mtime * 1000)
    disk.delete_orphans({known.path}, older_than_ms=now_ms)
    assert (tmp_path / orphan.path).exists()
    disk.delete_orphans({known.path}, older_than_ms=now_ms + 3_700_000)
    assert ((tmp_path / orphan.path).exists(), (tmp_path / known.path).exists()) == (False, True)
