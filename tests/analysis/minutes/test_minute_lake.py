"""Summaries in Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from edgewake.cloud.analysis.minutes import minute_lake
from edgewake.cloud.analysis.minutes.minute_lake import Lake
from edgewake.protocol.clock import FakeClock

T0 = 1_790_000_040_000
DAY_MS = 86_400_000


def new(root: Path, *, days: int = 0, now_ms: int = T0) -> Lake:
    return Lake(root, FakeClock(now_ms), days=days)


def rows(*minutes: int, count: int = 1) -> pa.Table:
    return pa.table(
        {"field": ["x"] * len(minutes), "minute": list(minutes), "count": [count] * len(minutes)}
    )


def everything(root: Path) -> pa.Table:
    return ds.dataset(
        root / "summaries", partitioning="hive", exclude_invalid_files=True
    ).to_table()


def test_a_batch_is_one_file_for_each_day_it_touches(tmp_path: Path) -> None:
    new(tmp_path).keep("s", rows(T0, T0 + DAY_MS), 3)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet"))
    assert files == [
        f"summaries/stream=s/date=2026-09-{day}/000000000003.parquet" for day in ("21", "22")
    ]
    assert everything(tmp_path).column("revision").to_pylist() == [3, 3]


def test_a_repeated_batch_replaces_its_own_file(tmp_path: Path) -> None:
    for _ in range(2):
        new(tmp_path).keep("s", rows(T0), 3)
    assert everything(tmp_path).num_rows == 1


def test_the_highest_revision_of_a_minute_is_the_truth(tmp_path: Path) -> None:
    for revision in (1, 2, 3):
        new(tmp_path).keep("s", rows(T0, count=revision), revision)
    assert minute_lake.latest(everything(tmp_path)).column("count").to_pylist() == [3]


def test_many_files_of_a_day_become_one_with_the_truth_alone(tmp_path: Path) -> None:
    for revision in range(minute_lake.FILES_MAX):
        new(tmp_path).keep("s", rows(T0 + revision % 2 * 60_000, count=revision), revision)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert sorted(everything(tmp_path).column("count").to_pylist()) == [
        minute_lake.FILES_MAX - 2,
        minute_lake.FILES_MAX - 1,
    ]


@pytest.mark.parametrize("where", [slice(0, None), slice(4, 60)], ids=["all of it", "its rows"])
def test_a_damaged_file_is_put_aside_and_the_others_are_merged(
    tmp_path: Path, where: slice
) -> None:
    """Each batch after it failed, for it was read again with each."""
    for revision in range(minute_lake.FILES_MAX - 1):
        new(tmp_path).keep("s", rows(T0 + revision * 60_000), revision)
    damaged = sorted(tmp_path.rglob("*.parquet"))[3]
    data = bytearray(damaged.read_bytes())
    data[where] = b"\xff" * len(data[where])
    damaged.write_bytes(data)
    new(tmp_path).keep("s", rows(T0 + minute_lake.FILES_MAX * 60_000), minute_lake.FILES_MAX)
    assert [path.name for path in tmp_path.rglob("*.damaged")] == [f"_{damaged.name}.damaged"]
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    assert everything(tmp_path).num_rows == minute_lake.FILES_MAX - 1


def test_a_repeated_batch_whose_file_was_merged_takes_nothing_from_the_others(
    tmp_path: Path,
) -> None:
    """A driver that died after its batch's merge repeats the batch."""
    for revision in (*range(minute_lake.FILES_MAX), minute_lake.FILES_MAX - 1):
        new(tmp_path).keep("s", rows(T0 + revision * 60_000), revision)
    assert everything(tmp_path).num_rows == minute_lake.FILES_MAX
    new(tmp_path).keep("s", rows(T0), minute_lake.FILES_MAX)
    assert everything(tmp_path).num_rows == minute_lake.FILES_MAX + 1


def test_parts_of_a_minute_that_came_late_stay_beside_it_when_files_are_merged(
    tmp_path: Path,
) -> None:
    before = rows(T0)  # of a version without parts
    in_time, late = (
        rows(T0, count=2).append_column("part", pa.array([part], pa.int64())) for part in (None, 7)
    )
    for revision in range(minute_lake.FILES_MAX):
        new(tmp_path).keep("s", [before, in_time, late][revision % 3], revision)
    assert len(list(tmp_path.rglob("*.parquet"))) == 1
    found = everything(tmp_path)
    assert sorted(
        zip(found["part"].to_pylist(), found["count"].to_pylist(), strict=True), key=str
    ) == [(7, 2), (None, 2)]


def test_large_files_of_a_day_are_merged_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new(tmp_path).keep("s", rows(T0), 0)
    (path,) = tmp_path.rglob("*.parquet")
    monkeypatch.setattr(
        minute_lake, "MERGE_BYTES_MAX", 20 * pq.read_metadata(path).row_group(0).total_byte_size
    )
    for revision in range(1, minute_lake.FILES_MAX):
        new(tmp_path).keep("s", rows(T0 + revision * 60_000), revision)
    assert [path.stem for path in sorted(tmp_path.rglob("*.parquet"))] == [
        f"{i:012d}-merged" for i in (19, 39, 59)
    ]
    assert minute_lake.latest(everything(tmp_path)).num_rows == minute_lake.FILES_MAX


def test_what_a_merge_left_when_it_died_counts_once_and_goes_with_the_next(tmp_path: Path) -> None:
    for revision in range(minute_lake.FILES_MAX - 1):
        new(tmp_path).keep("s", rows(T0 + revision * 60_000), revision)
    (folder,) = tmp_path.glob("summaries/*/*")
    copies = [(path, path.read_bytes()) for path in folder.iterdir()]
    new(tmp_path).keep("s", rows(T0), minute_lake.FILES_MAX - 1)
    for path, data in copies:
        path.write_bytes(data)
    (folder / "000000000009.partial").write_bytes(b"half")
    assert everything(tmp_path).num_rows > minute_lake.FILES_MAX, (
        "the merge died before it removed anything"
    )
    assert minute_lake.latest(everything(tmp_path)).num_rows == minute_lake.FILES_MAX - 1
    new(tmp_path).keep("s", rows(T0), minute_lake.FILES_MAX)
    assert len(list(folder.iterdir())) == 2
    assert minute_lake.latest(everything(tmp_path)).num_rows == minute_lake.FILES_MAX - 1


def test_days_of_many_batches_are_few_files_and_a_merge_never_reads_merged_ones(
    tmp_path: Path,
) -> None:
    step_ms = 20 * 60_000
    for revision in range(3 * DAY_MS // step_ms):
        new(tmp_path).keep("s", rows(T0 + revision * step_ms), revision)
    files = [sum(1 for _ in folder.iterdir()) for folder in sorted(tmp_path.glob("summaries/*/*"))]
    assert len(files) == 4
    assert files[1:-1] == [2] * 2, (
        "72 batches a day: 60 of them, and the rest when the day was over"
    )
    assert everything(tmp_path).num_rows == 3 * DAY_MS // step_ms


def test_the_oldest_days_go_and_a_clock_that_is_years_ahead_removes_nothing(tmp_path: Path) -> None:
    for day in range(5):
        new(tmp_path, days=3, now_ms=T0 + day * DAY_MS).keep("s", rows(T0 + day * DAY_MS), day)
    dates = ["2026-09-23", "2026-09-24", "2026-09-25"]
    assert sorted(path.name for path in tmp_path.glob("summaries/*/*")) == [
        f"date={date}" for date in dates
    ]
    years_ms = 3000 * DAY_MS
    new(tmp_path, days=3, now_ms=T0 + 4 * DAY_MS).keep("s", rows(T0 + years_ms), 5)
    new(tmp_path, days=3, now_ms=T0 + years_ms).keep("s", rows(T0 + 3 * DAY_MS + 60_000), 6)
    assert {f"date={date}" for date in dates} <= {
        path.name for path in tmp_path.glob("summaries/*/*")
    }


def test_an_erased_stream_is_in_no_file_and_what_began_after_it_stays(tmp_path: Path) -> None:
    lake = new(tmp_path)
    lake.keep("s", rows(T0 - 120_000, T0), 3)
    lake.keep("s", rows(T0), 4)
    lake.keep("other", rows(T0 - 120_000), 3)
    damaged = next((tmp_path / "summaries" / "stream=s").glob("date=*/*4.parquet"))
    damaged.write_bytes(b"PAR1")
    assert lake.erase("s", T0) == (2, 1)
    assert sorted(everything(tmp_path)["minute"].to_pylist()) == [T0 - 120_000, T0]
    assert lake.erase("s", T0 + 1) == (1, 1)
    assert not [one for one in (tmp_path / "summaries" / "stream=s").rglob("*") if one.is_file()]
    assert everything(tmp_path)["stream"].to_pylist() == ["other"]
