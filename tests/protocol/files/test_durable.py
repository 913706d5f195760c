"""Names of files that survive a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgewake.protocol.files.durable import sync_directory


def test_the_folder_itself_is_synced_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, Path]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append((fd, Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    sync_directory(tmp_path)
    ((fd, path),) = synced
    assert path == tmp_path
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "gone")
