"""A file that is read again: one that cannot be opened now is tried again, and said once."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from edgewake.cloud.rights.watched_file import WatchedFile


def test_a_file_that_cannot_be_opened_is_tried_again_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "revoked"
    path.write_text("one")
    watched = WatchedFile("revoked_file", path, str.split)
    path.write_text("one two")

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(Path, "open", refuse)
        assert [watched.reload(), watched.reload()] == [False, False]
    assert watched.value == ["one"]
    assert len(caplog.records) == 1
    assert watched.reload()
    assert watched.value == ["one", "two"]


def test_what_is_wrong_in_a_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "revoked"
    path.write_text("1")
    read: list[str] = []

    def parse(text: str) -> int:
        read.append(text)
        return len(text)

    watched = WatchedFile("revoked_file", path, parse)
    path.write_bytes(b"\xff\xff")
    assert [watched.reload(), watched.reload()] == [False, False]
    path.write_text("333")
    assert watched.reload()
    assert read == ["1", "333"]
