"""A small file is the old one or the new one, whole, whatever the disk and the folder do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edgewake.edge import durable_file
from edgewake.edge.durable_file import NEW_SUFFIX, check, replace, sync_directory
from tests.open_files import open_files


@pytest.mark.parametrize("before", [None, b"old", b"a much longer one than the new one"])
@pytest.mark.parametrize("data", [b"", b"new", b"x" * 1_000_000])
def test_it_is_the_new_one_for_its_owner_alone(
    tmp_path: Path, before: bytes | None, data: bytes
) -> None:
    path = tmp_path / "file.json"
    if before is not None:
        path.write_bytes(before)
        path.chmod(0o666)
    replace(path, data)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (data, 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_crash_left_beside_it_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    (tmp_path / f"file.json{NEW_SUFFIX}").write_bytes(
        b"half of a longer one, from before the crash"
    )
    replace(path, b"new")
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"new", [path])


@pytest.mark.parametrize("call", ["fsync", "rename", "open"])
def test_where_the_disk_fails_it_is_as_it_was_and_nothing_is_left_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = tmp_path / "file.json"
    replace(path, b"old")
    failed: list[str] = []

    def fails(*_: Any, **__: Any) -> Any:
        failed.append(call)
        raise OSError(28, "No space left on device")

    target: Any = Path if call == "rename" else os
    monkeypatch.setattr(target, "replace" if call == "rename" else call, fails)
    with pytest.raises(OSError, match="No space left"):
        replace(path, b"new")
    monkeypatch.undo()
    assert (failed, path.read_bytes(), list(tmp_path.iterdir())) == ([call], b"old", [path])


def test_the_bytes_are_durable_before_the_name_and_the_name_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order of the steps is all that makes it whole after a power cut."""
    path = tmp_path / "file.json"
    steps: list[tuple[str, str]] = []
    sizes: list[int] = []
    plain_fsync, plain_replace = os.fsync, Path.replace

    def fsync(fd: int) -> None:
        steps.append(("fsync", Path(f"/proc/self/fd/{fd}").readlink().name))
        sizes.append(os.fstat(fd).st_size)
        plain_fsync(fd)

    def rename(self: Path, target: Path) -> Path:
        steps.append(("rename", self.name))
        return plain_replace(self, target)

    monkeypatch.setattr(durable_file.os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", rename)
    replace(path, b"new")
    assert steps == [
        ("fsync", "file.json.new"),
        ("rename", "file.json.new"),
        ("fsync", tmp_path.name),
    ]
    assert sizes[0] == len(b"new"), "no byte is left in a buffer of ours"


def test_whether_it_could_be_written_is_found_out_without_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    replace(path, b"old")
    check(path)
    assert (path.read_bytes(), list(tmp_path.iterdir())) == (b"old", [path])
    with pytest.raises(OSError, match="No such file"):
        check(tmp_path / "none" / "file.json")


def test_no_file_descriptor_is_left_open(tmp_path: Path) -> None:
    for number in range(10):
        replace(tmp_path / "file.json", b"%d" % number)
        check(tmp_path / "file.json")
        with pytest.raises(OSError, match="No such file"):
            replace(tmp_path / "none" / "file.json", b"x")
        with pytest.raises(OSError, match="No such file"):
            sync_directory(tmp_path / "none")
    assert open_files(tmp_path) == []
