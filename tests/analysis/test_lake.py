"""Summaries in Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from edgewake.cloud.analysis import lake
from edgewake.cloud.analysis.lake import Lake

T0 = 1_790_000_040_000
DAY_MS = 86_400_000


def rows(*minutes: int, count: int = 1) -> pa.Table:
    return pa.table({"field": ["x"] * len(minutes), "minute": list(minutes), "count": [count] * len(minutes)})


def everything(root: Path) -> pa.Table:
    return ds.dataset(root / "summaries", partitioning="hive", exclude_invalid_files=True).to_table()


def test_a_batch_is_one_file_for_each_day_it_touches(tmp_path: Path) -> None:
    Lake(tmp_path).keep("s", rows(T0, T0 + DAY_MS), 3)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    assert files == [f"summaries/stream=s/date=2026-09-{day}/000000000003.parquet" for day in ("21", "22")]
    assert everything(tmp_path).column("revision").to_pylist() == [3, 3]


def test_a_repeated_batch_replaces_its_own_file(tmp_path: Path) -> None:
    for _ in range(2):
        Lake(tmp_path).keep("s", rows(T0), 3)
    assert everything(tmp_path).num_rows == 1


def test_the_highest_revision_of_a_minute_is_the_truth(tmp_path: Path) -> None:
    for revision in (1, 2, 3):
        Lake(tmp_path).keep("s", rows(T0, count=revision), revision)
    assert lake.latest(everything(tmp_path)).column("count").to_pylist() == [3]


def test_many_files_of_a_day_become_one_with_the_truth_alone(tmp_path: Path) -> None:
    for revision in range(lake.FILES_MAX):
        Lake(tmp_path).keep("s", rows(T0 + revision % 2 * 60_000, count=revision), revision)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert sorted(everything(tmp_path).column("count").to_pylist()) == [lake.FILES_MAX - 2, lake.FILES_MAX - 1]
