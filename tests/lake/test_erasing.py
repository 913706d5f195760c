"""Which rows of which files an erasure takes; files are real."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from edgewake.cloud.lake.erasing import gone_of
from edgewake.cloud.lake.files import Damaged, Disk
from edgewake.cloud.lake.manifest import File
from edgewake.cloud.lake.shape import ColumnType, Kind
from edgewake.cloud.lake.sources import Source
from edgewake.protocol import topics
from edgewake.protocol.ops.erasure import Erasure, Step

ASKED = 1_790_000_000_000


def at(ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).replace(tzinfo=None)


def erasure(what: str, name: str, **more: object) -> Erasure:
    return Erasure.model_validate(
        {"id": "1-a", "what": what, "name": name, "asked_at": ASKED, "asked_by": "me",
         "step": Step.LAKE, "updated_at": ASKED} | more
    )  # fmt: skip


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def written(disk: Disk, source: Source, columns: Mapping[str, Sequence[object]]) -> File:
    fields = {"v": ColumnType.STRING} if "v" in columns else {}
    return disk.write(pa.table(dict(columns)), source, "2026-09-21", fields, now_ms=ASKED)


def left(disk: Disk, tmp_path: Path, row: Erasure, file: File) -> object:
    is_gone = gone_of(row, file)
    if is_gone is None:
        return "untouched"
    after, _ = disk.without(file, is_gone, now_ms=ASKED)
    if after is None:
        return "nothing"
    return "untouched" if after == file else pq.read_table(tmp_path / after.path).to_pylist()


STREAM = Source("ew.s.s", Kind.STREAM, "s")
READINGS: Mapping[str, Sequence[object]] = {
    "device": ["a", "b", "a"],
    "received_at": [at(ASKED - 1), at(ASKED - 1), at(ASKED + 1)],
    "v": ["x", "a", None],
}


@pytest.mark.parametrize(
    ("what", "name", "more", "expected"),
    [
        ("stream", "s", {}, ["a"]),
        ("stream", "s", {"deleted_at": ASKED + 5}, "nothing"),
        ("stream", "t", {}, "untouched"),
        ("device", "a", {}, ["b", "a"]),
        ("device", "c", {}, "untouched"),
    ],
)
def test_of_readings_goes_what_came_until_then(
    disk: Disk, tmp_path: Path, what: str, name: str, more: dict[str, int], expected: object
) -> None:
    found = left(disk, tmp_path, erasure(what, name, **more), written(disk, STREAM, READINGS))
    assert (
        found if isinstance(found, str) else [row["device"] for row in found]  # type: ignore[attr-defined]
    ) == expected


def test_of_results_goes_what_removed_queries_gave(disk: Disk, tmp_path: Path) -> None:
    file = written(disk, Source("ew.q.q.17", Kind.QUERY, "q"), {"revision": [1, 2]})
    assert left(disk, tmp_path, erasure("stream", "s", queries=("q",)), file) == "nothing"
    assert left(disk, tmp_path, erasure("stream", "s", queries=("p",)), file) == "untouched"
    assert left(disk, tmp_path, erasure("device", "a"), file) == "untouched"


def test_of_summaries_goes_what_is_of_the_stream_or_made_by_the_device(
    disk: Disk, tmp_path: Path
) -> None:
    columns: dict[str, Sequence[object]] = {
        "stream": ["s", "s", "t", "t", "s"],
        "devices": ["", "", "", "@a", ""],
        "maker": ["", "a|9|kll", "late:a|9|kll", "", "b|9|kll"],
        "window_start": [at(ASKED - 9)] * 4 + [at(ASKED + 9)],
    }
    file = written(disk, Source(topics.HOURS, Kind.SUMMARY, "summaries.hour"), columns)
    of_stream = left(disk, tmp_path, erasure("stream", "s"), file)
    assert [row["stream"] for row in of_stream] == ["t", "t", "s"]  # type: ignore[attr-defined]
    of_device = left(disk, tmp_path, erasure("device", "a"), file)
    assert [row["maker"] for row in of_device] == ["", "b|9|kll"]  # type: ignore[attr-defined]


def test_streams_that_tell_of_others_lose_what_names_it(disk: Disk, tmp_path: Path) -> None:
    source = Source(topics.LATE, Kind.STREAM, "late_readings")
    file = written(disk, source, dict(READINGS) | {"v": ["q", "r", "a"]})
    named = left(disk, tmp_path, erasure("stream", "s", queries=("q",)), file)
    assert [row["v"] for row in named] == ["r", "a"]  # type: ignore[attr-defined]
    of_device = left(disk, tmp_path, erasure("device", "r"), file)
    assert [row["v"] for row in of_device] == ["q", "a"]  # type: ignore[attr-defined]


def test_a_sketch_of_a_field_that_is_called_as_the_stream_is_stays(
    disk: Disk, tmp_path: Path
) -> None:
    source = Source(topics.stream_topic("device_sketches"), Kind.STREAM, "device_sketches")
    columns = dict(READINGS) | {"of_stream": ["t", "s", "t"], "of_field": ["s", "v", "v"]}
    file = written(disk, source, columns)
    named = left(disk, tmp_path, erasure("stream", "s"), file)
    assert [row["of_field"] for row in named] == ["s", "v"]  # type: ignore[attr-defined]


def test_results_of_a_query_that_was_registered_since_stay(disk: Disk, tmp_path: Path) -> None:
    asked = erasure("stream", "s", queries=("q",))
    for registered_at, wanted in ((ASKED - 1, "nothing"), (ASKED + 1, "untouched")):
        source = Source(topics.query_topic("q", registered_at), Kind.QUERY, "q")
        file = written(disk, source, READINGS)
        assert left(disk, tmp_path, asked, file) == wanted


def test_a_file_that_cannot_be_read_is_said_and_not_passed_over(disk: Disk, tmp_path: Path) -> None:
    file = written(disk, STREAM, READINGS)
    (tmp_path / file.path).write_bytes(b"PAR1")
    is_gone = gone_of(erasure("device", "a"), file)
    assert is_gone is not None
    with pytest.raises(Damaged):
        disk.without(file, is_gone, now_ms=ASKED)
