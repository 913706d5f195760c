"""Keys that are made once."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from edgewake.deploy import secret_files
from edgewake.protocol.errors import LocalError


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "one"
    assert secret_files.ensure(path, "first\n") == "first\n"
    assert secret_files.ensure(path, "second\n") == "first\n"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert list(path.parent.iterdir()) == [path]


def test_what_a_start_that_was_killed_left_half_written_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "one"
    path.with_name(f".one.{os.getpid()}").write_text("hal")
    assert secret_files.ensure(path, "whole") == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match=f"{tmp_path}/file/one: "):
        secret_files.ensure(tmp_path / "file" / "one", "key")


def test_each_key_has_its_form_and_none_comes_twice() -> None:
    forms = {
        secret_files.cursor_key: r"1 [0-9a-f]{64}\n",
        secret_files.lease_key: r"[0-9a-f]{64}\n",
        secret_files.share_key: r"[0-9a-f]{64}\n",
        secret_files.reader_key: r"[0-9a-f]{32}\n",
        secret_files.ops_key: r"ew_[0-9a-f]{40}\n",
    }
    for make, form in forms.items():
        one, other = make(), make()
        assert re.fullmatch(form, one)
        assert one != other
