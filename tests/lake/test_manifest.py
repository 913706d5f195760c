"""What counts in the lake, and the files of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from edgewake.cloud.lake import manifest as manifests
from edgewake.cloud.lake.files import Disk
from edgewake.cloud.lake.manifest import Fenced, File, Gap, Manifest, Place, contents, kept_topics
from edgewake.cloud.lake.shape import ColumnType, Kind
from edgewake.cloud.lake.sources import Source
from edgewake.protocol.errors import LocalError, Unavailable

SOURCE = Source("ew.s.s", Kind.STREAM, "s")
AT = {("ew.s.s", 0): Place("id-1", 10)}
NUMBER = ColumnType.NUMBER


def written(folder: Path, values: list[float], field: str = "a") -> File:
    return Disk(folder).write(
        pa.table({field: values}), SOURCE, "2026-11-22", {field: NUMBER}, now_ms=1
    )


def test_files_count_together_with_the_places_they_reach(tmp_path: Path) -> None:
    assert (contents(tmp_path, ["ew.s.s"]).files, kept_topics(tmp_path)) == ([], set())
    manifest, file = Manifest(tmp_path), written(tmp_path, [1.0])
    manifest.commit([file], {("ew.s.s", 0): None}, AT, [Gap("ew.s.s", 0, 3, 7)], now_ms=1)
    found = contents(tmp_path, ["ew.s.s"])
    assert (found.files, found.places, found.gaps) == ([file], AT, 4)
    assert contents(tmp_path, ["ew.s.other"]).files == []
    assert kept_topics(tmp_path) == {"ew.s.s"}


def test_a_manifest_that_is_just_being_made_is_empty_for_those_who_ask(tmp_path: Path) -> None:
    """The writer opens the file first: a question between that and its tables was answered with an
    error.
    """
    (tmp_path / manifests.NAME).touch()
    assert (contents(tmp_path, ["ew.s.s"]).files, kept_topics(tmp_path)) == ([], set())
    Manifest(tmp_path)
    assert contents(tmp_path, ["ew.s.s"]).files == []


def test_of_two_writers_one_is_refused_and_nothing_of_it_counts(tmp_path: Path) -> None:
    first, second = Manifest(tmp_path), Manifest(tmp_path)
    first.commit([written(tmp_path, [1.0])], {("ew.s.s", 0): None}, AT, now_ms=1)
    with pytest.raises(Fenced):
        second.commit([written(tmp_path, [1.0])], {("ew.s.s", 0): None}, AT, now_ms=1)
    assert sum(file.rows for file in first.files()) == 1
    merged = first.files()
    first.replace(merged, None, now_ms=5)
    with pytest.raises(Fenced):
        second.replace(merged, written(tmp_path, [1.0]), now_ms=5)
    assert (first.files(), first.old(5), first.old(6)) == ([], [], [merged[0].path])


def test_a_manifest_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Manifest(tmp_path).close()
    monkeypatch.setattr(manifests, "VERSION", 3)
    what = (
        "version 2, expected 3; another release of edgewake wrote this lake; move its folder away"
    )
    with pytest.raises(LocalError, match=what):
        Manifest(tmp_path)
    with pytest.raises(Unavailable, match=what):
        contents(tmp_path, ["ew.s.s"])
    with pytest.raises(Unavailable, match=what):
        kept_topics(tmp_path)
