"""A folder has one user."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from edgewake.cloud.analysis import data_dir_lock


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
