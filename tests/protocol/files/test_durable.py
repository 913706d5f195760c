"""Names of files that survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgewake.protocol.files.durable import sync_directory
from tests.open_files import open_files


def test_the_folder_itself_is_synced_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    sync_directory(tmp_path)
    assert synced == [tmp_path]
    assert open_files(tmp_path) == []


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "gone")
