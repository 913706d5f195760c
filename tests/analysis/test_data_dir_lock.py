"""A folder has one user."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from edgewake.cloud.analysis import data_dir_lock
from edgewake.protocol.errors import LocalError


def test_a_folder_has_one_user_and_a_copy_of_it_another_name(tmp_path: Path) -> None:
    folder, copy = tmp_path / "data", tmp_path / "copy"
    held = data_dir_lock.lock(folder)
    assert held is not None
    assert data_dir_lock.lock(folder) is None
    name = data_dir_lock.name_of(folder)
    assert data_dir_lock.name_of(folder) == name
    shutil.copytree(folder, copy)
    assert len({name, data_dir_lock.name_of(copy), data_dir_lock.name_of(folder, "elsewhere")}) == 3
    os.close(held)
    again = data_dir_lock.lock(folder)
    assert again is not None, "its user is gone"
    os.close(again)


def test_the_name_is_durable_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        synced.append((path.name, (tmp_path / "name").exists()))
        assert path.is_dir() or len(path.read_bytes()) == 32, "all of it was written"
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    data_dir_lock.name_of(tmp_path)
    assert synced == [("name.new", False), (tmp_path.name, True)]
    data_dir_lock.name_of(tmp_path)
    assert len(synced) == 2, "it is there"


def test_a_name_that_a_power_cut_emptied_is_made_once_more(tmp_path: Path) -> None:
    (tmp_path / "name").touch()
    name = data_dir_lock.name_of(tmp_path)
    assert len((tmp_path / "name").read_text()) == 32
    assert data_dir_lock.name_of(tmp_path) == name


def test_a_name_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "name").write_bytes(b"\xff\xfe")
    with pytest.raises(LocalError, match="name: expected ASCII"):
        data_dir_lock.name_of(tmp_path)
